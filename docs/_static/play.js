// Figures to play with: what they share. The file play-NAME.js draws the figure NAME.
const play = {
  figures: {},
  sliders: 0,

  // An element with properties and children.
  make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  },

  // A slider over the values of a list. `say` returns the words for a value.
  slider(name, values, first, say, changed) {
    const id = `play-slider-${play.sliders++}`;
    const shown = play.make("span", { ariaHidden: "true" });
    const input = play.make("input", { type: "range", id, min: 0, max: values.length - 1 });
    input.value = values.indexOf(first);
    const update = () => {
      shown.textContent = say(values[input.value]);
      input.setAttribute("aria-valuetext", shown.textContent);
    };
    input.addEventListener("input", () => { update(); changed(); });
    update();
    const box = play.make("div", {}, play.make("label", { htmlFor: id }, name), input, shown);
    return { box, get value() { return values[input.value]; } };
  },

  button(name, clicked) {
    const button = play.make("button", { type: "button" }, name);
    button.addEventListener("click", clicked);
    return button;
  },

  numbers(first, last) {
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  },
};

// A figure is a function that returns its parts: controls, drawing and a text with role "status",
// which screen readers read out after each change.
document.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll("figure.play")) {
    const { controls, drawing, status } = play.figures[figure.dataset.play]();
    status.setAttribute("role", "status");
    figure.prepend(play.make("div", { className: "play-controls" }, ...controls), drawing, status);
    const code = figure.previousElementSibling; // of a figure that a code cell drew
    if (code.className === "picture-code") code.hidden = code.previousElementSibling.hidden = true;
  }
});
