// A filter above the list of a page's entries. Without this script there is only the list.
document.addEventListener("DOMContentLoaded", () => {
  const list = document.querySelector(".entries");
  if (!list) return;
  const entries = [...list.querySelectorAll("a")].map((link) => {
    const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    return { parts: [link.closest("li"), section], text: section.textContent.toLowerCase() };
  });
  const groups = new Set(entries.map(({ parts }) => parts[1].parentElement));

  list.insertAdjacentHTML("beforebegin", `
    <div class="filter" role="search" aria-label="Entries of this page">
      <label for="filter">Filter the entries by a part of your error message</label>
      <input id="filter" type="search" autocomplete="off" spellcheck="false">
      <span role="status"></span>
    </div>`);
  const input = document.getElementById("filter");
  const status = document.querySelector(".filter [role=status]");

  // A pasted message may have other numbers than the page, so words with digits need not match.
  const matches = (text, query) => {
    const words = query.split(/\s+/).filter((word) => !/\d/.test(word));
    return text.includes(query) || (words.length && words.every((word) => text.includes(word)));
  };
  const filter = () => {
    const query = input.value.toLowerCase().trim();
    let left = 0;
    for (const { parts, text } of entries) {
      const match = matches(text, query);
      parts.forEach((part) => { part.hidden = !match; });
      left += match ? 1 : 0;
    }
    for (const group of groups) {
      group.hidden = !group.querySelector(":scope > section:not([hidden])");
    }
    status.textContent = `${left} of ${entries.length} entries`;
  };
  const clear = () => { input.value = ""; filter(); };

  input.addEventListener("input", filter);
  input.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
  // A link may lead to an entry that the filter hides.
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.closest("[hidden]")) {
      clear();
      target.scrollIntoView();
    }
  });
  filter();
});
