// Plays a recorded terminal: shows each line at its time. Without this script the text is whole.
for (const terminal of document.querySelectorAll(".terminal")) {
  const screen = terminal.querySelector("pre");
  const lines = [...screen.querySelectorAll("[data-at]")];
  const end = Number(lines.at(-1).dataset.at);
  const begin = Math.max(0, Number(lines[0].dataset.at) - 0.5); // before it there is nothing to see
  let seconds = end; // how much of the recording is shown
  let before = null; // when the last frame was drawn; null while paused
  let next = 0; // the frame asked for

  const bar = document.createElement("div");
  bar.className = "terminal-bar";
  const play = document.createElement("button");
  const whole = document.createElement("button");
  const clock = document.createElement("span");
  play.type = whole.type = "button";
  whole.textContent = "Show all";
  bar.append(play, whole, clock);
  terminal.append(bar);

  function draw() {
    for (const line of lines) line.hidden = Number(line.dataset.at) > seconds;
    play.textContent = before !== null ? "Pause" : seconds < end ? "Continue" : "Play";
    clock.textContent = `${seconds.toFixed(1)} of ${end.toFixed(1)} s`;
    screen.scrollTop = screen.scrollHeight;
  }

  function frame(now) {
    if (before === null) return;
    seconds = Math.min(end, seconds + Math.max(0, now - before) / 1000);
    before = seconds < end ? now : null;
    draw();
    next = requestAnimationFrame(frame);
  }

  function start() {
    if (seconds >= end) seconds = begin;
    before = performance.now();
    cancelAnimationFrame(next);
    next = requestAnimationFrame(frame);
  }

  play.addEventListener("click", () => {
    if (before === null) start();
    else before = null;
    draw();
  });
  whole.addEventListener("click", () => {
    before = null;
    seconds = end;
    draw();
  });
  draw();

  // It begins by itself when it is seen, unless the reader wants less motion.
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    const observer = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      observer.disconnect();
      start();
    }, { threshold: 0.6 });
    observer.observe(terminal);
  }
}
