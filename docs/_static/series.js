// The switch between unified and side by side. Without this script the diffs are unified.
document.addEventListener("DOMContentLoaded", () => {
  const stored = (...what) => {
    try {
      return what.length > 1 ? localStorage.setItem(...what) : localStorage.getItem(...what);
    } catch {
      return null; // the browser keeps nothing
    }
  };
  const root = document.documentElement;
  const views = { unified: "unified", split: "side by side" };
  const buttons = [];
  // What scrolls sideways can be reached by the keyboard.
  const reach = () => {
    for (const pre of document.querySelectorAll(".highlight pre")) {
      if (pre.scrollWidth > pre.clientWidth) pre.tabIndex = 0;
    }
  };
  const choose = (view) => {
    root.dataset.diff = view;
    stored("diff", view);
    buttons.forEach((b) => b.setAttribute("aria-pressed", b.dataset.view === view));
    reach();
  };
  const heads = document.querySelectorAll(".lesson-diff:not(.whole) .diff-head");
  for (const head of heads) {
    const group = document.createElement("div");
    group.className = "diff-views";
    group.role = "group";
    group.ariaLabel = "How to show the differences";
    for (const [view, label] of Object.entries(views)) {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.view = view;
      button.textContent = label;
      button.addEventListener("click", () => {
        const before = head.getBoundingClientRect().top;
        choose(view);
        window.scrollBy(0, head.getBoundingClientRect().top - before);
      });
      buttons.push(button);
      group.append(button);
    }
    head.append(group);
  }
  if (heads.length) choose(stored("diff") === "split" ? "split" : "unified");

  reach();
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // what a fold shows

  // On a phone the contents are in a drawer, which a click on an entry closes.
  document.querySelector(".toc-tree")?.addEventListener("click", (event) => {
    if (event.target.closest("a")) document.getElementById("__navigation").checked = false;
  });

  // The theme gives its sidebar no name.
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
});
