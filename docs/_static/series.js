// The switch between unified and side by side. Without this script the diffs are unified.
document.addEventListener("DOMContentLoaded", () => {
  const root = document.documentElement;
  const views = { unified: "unified", split: "side by side" };
  const buttons = [];
  const choose = (view) => {
    root.dataset.diff = view;
    localStorage.setItem("diff", view);
    buttons.forEach((b) => b.setAttribute("aria-pressed", b.dataset.view === view));
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
  if (heads.length) choose(localStorage.getItem("diff") === "split" ? "split" : "unified");

  // What scrolls sideways can be reached by the keyboard.
  const reach = () => {
    for (const pre of document.querySelectorAll(".highlight pre")) {
      if (pre.scrollWidth > pre.clientWidth) pre.tabIndex = 0;
    }
  };
  reach();
  addEventListener("resize", reach);

  // What the theme calls neither of its two sidebars, a screen reader calls both.
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
});
