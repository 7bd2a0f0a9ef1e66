// Backward and the all-reduces of its buckets on a time axis: the model of docs/theory/step_time.py.
// Times are in seconds, sizes in bytes. tests/site/test_play.py compares the two.
play.figures.overlap = () => {
  const models = [
    { name: "gpt-micro", size: 3251200, backward: 0.0194 },
    { name: "ResNet-50", size: 102228128, backward: 0.12 },
    { name: "GPT-2 124M", size: 497759232, backward: 0.06 },
  ];
  const MIB = 2 ** 20;

  function allReduce(size, world, latency, bandwidth) {
    const rounds = 2 * (world - 1);
    return rounds * latency + rounds / world * size / bandwidth;
  }

  // Per bucket, when it is full and when its all-reduce runs.
  function timeline(model, bucket, ...network) {
    const events = [];
    for (let computed = 0, end = 0; computed < model.size;) {
      const size = Math.min(bucket, model.size - computed);
      computed += size;
      const full = model.backward * computed / model.size;
      const start = Math.max(full, end); // wait for the all-reduce of the bucket before
      end = start + allReduce(size, ...network);
      events.push({ full, start, end });
    }
    return events;
  }

  const ms = (seconds) => `${(1000 * seconds).toFixed(1)} ms`;
  const options = models.map(({ name, size, backward }) =>
    play.make("option", {}, `${name}: ${(size / 1e6).toFixed(1)} MB, backward ${ms(backward)}`));
  const choice = play.make("select", { id: "play-model" }, ...options);
  choice.selectedIndex = 1;
  choice.addEventListener("change", draw);
  const slider = (name, values, first, unit) =>
    play.slider(name, values, first, (value) => `${value}${unit}`, draw);
  const world = slider("processes", [2, 4, 8, 16, 32, 64, 128, 256], 8, "");
  const bandwidth = slider("bandwidth", [0.125, 0.5, 1.25, 3.125, 6.25, 12.5, 25, 50, 200], 1.25, " GB/s");
  const latency = slider("latency", [1, 2, 5, 10, 20, 50, 100, 200, 500], 50, " µs");
  const bucket = slider("bucket", [1, 2, 4, 8, 16, 25, 50, 100, 200, 500], 25, " MiB");

  const drawing = play.make("div", { className: "play-overlap" });
  const status = play.make("p");
  draw();

  function draw() {
    const model = models[choice.selectedIndex];
    const events = timeline(model, bucket.value * MIB, world.value, latency.value / 1e6, bandwidth.value * 1e9);
    const sending = events.reduce((sum, { start, end }) => sum + end - start, 0);
    const overlapped = events.at(-1).end, oneByOne = model.backward + sending;

    const lane = (name, bars) => {
      const parts = bars.map(([start, end]) => {
        const bar = play.make("i", {});
        bar.style.left = `${100 * start / oneByOne}%`;
        bar.style.width = `${100 * (end - start) / oneByOne}%`;
        return bar;
      });
      return play.make("div", { className: `lane ${name}` }, ...parts);
    };
    const backward = () => lane("backward", [[0, model.backward]]);
    let end = model.backward;
    const after = events.map((event) => [end, end += event.end - event.start]);
    drawing.replaceChildren(
      play.make("b", {}, `with overlap: ${ms(overlapped)}`),
      backward(), lane("send", events.map(({ start, end }) => [start, end])),
      play.make("b", {}, `without: ${ms(oneByOne)}`),
      backward(), lane("send", after),
      play.make("small", {}, play.make("span", {}, "0 ms"), play.make("span", {}, ms(oneByOne))),
    );
    const reduces = events.length === 1 ? "1 all-reduce takes" : `${events.length} all-reduces take`;
    status.textContent =
      `Backward takes ${ms(model.backward)}, and ${reduces} ${ms(sending)} in all. ` +
      `With overlap the last average arrives after ${ms(overlapped)}, ` +
      `which is ${ms(overlapped - model.backward)} after the end of backward; ` +
      `without overlap, after ${ms(oneByOne)}.`;
  }

  const label = play.make("label", { htmlFor: choice.id }, "model");
  const model = play.make("div", {}, label, choice);
  return { controls: [model, ...[world, bandwidth, latency, bucket].map((one) => one.box)], drawing, status };
};
