// Which rank gets which of 32 samples. This file deals them out as
// torch.utils.data.DistributedSampler does; tests/site/test_play.py compares the two.
play.figures["set-epoch"] = () => {
  // Torch's order of the samples in each epoch.
  const orders = [
    [12, 31, 25, 28, 19, 29, 9, 10, 6, 27, 4, 2, 3, 20, 24, 22, 14, 13, 15, 26, 18, 16, 23, 11, 21, 5, 8, 1, 17, 0, 7, 30],
    [5, 26, 1, 10, 7, 24, 13, 23, 31, 19, 30, 17, 28, 8, 27, 29, 22, 4, 16, 21, 2, 15, 12, 3, 14, 11, 25, 9, 0, 20, 18, 6],
    [8, 20, 13, 1, 22, 17, 10, 4, 16, 23, 6, 21, 31, 15, 5, 11, 12, 19, 7, 14, 24, 9, 25, 18, 27, 29, 30, 0, 3, 26, 28, 2],
    [10, 16, 9, 12, 4, 17, 24, 7, 21, 13, 18, 5, 11, 3, 14, 23, 15, 26, 6, 29, 20, 28, 1, 0, 22, 27, 31, 2, 30, 25, 8, 19],
    [26, 0, 3, 14, 5, 10, 21, 8, 1, 22, 24, 16, 27, 15, 18, 12, 23, 30, 9, 17, 19, 11, 20, 4, 7, 2, 31, 29, 6, 25, 28, 13],
    [3, 17, 9, 10, 0, 12, 24, 15, 8, 11, 1, 4, 23, 31, 14, 29, 5, 2, 13, 28, 7, 19, 6, 16, 21, 25, 27, 18, 26, 20, 30, 22],
    [10, 20, 5, 23, 22, 14, 19, 18, 24, 15, 11, 27, 0, 13, 21, 7, 31, 16, 8, 25, 1, 4, 28, 17, 2, 6, 3, 26, 30, 29, 12, 9],
    [15, 11, 3, 6, 19, 20, 21, 1, 12, 16, 30, 24, 5, 22, 9, 29, 26, 7, 27, 10, 8, 18, 2, 23, 28, 13, 31, 0, 4, 14, 25, 17],
  ];

  // The samples of each rank: pad the order from its beginning, then deal it like cards.
  function deal(order, world) {
    const each = Math.ceil(order.length / world);
    const padded = [...order, ...order.slice(0, each * world - order.length)];
    return play.numbers(0, world - 1).map((rank) => padded.filter((_, i) => i % world === rank));
  }

  const world = play.slider("processes", play.numbers(1, 8), 2, String, draw);
  const epochs = play.slider("epochs", play.numbers(1, 8), 5, String, draw);
  const use = play.make("input", { type: "checkbox", checked: true, id: "play-use" });
  use.addEventListener("change", draw);
  const label = play.make("label", { htmlFor: use.id }, "call set_epoch");
  const drawing = play.make("div", { className: "play-set-epoch" });
  const status = play.make("p");
  draw();

  function draw() {
    const hands = play.numbers(0, epochs.value - 1)
      .map((epoch) => deal(orders[use.checked ? epoch : 0], world.value));
    drawing.replaceChildren(...hands.flatMap(row));
    say(hands);
  }

  function row(hand, epoch) {
    const ranksOf = (sample) => hand.flatMap((samples, rank) => samples.includes(sample) ? [rank] : []);
    const squares = play.numbers(0, 31).map((sample) => {
      const ranks = ranksOf(sample);
      const square = play.make("span", { title: `sample ${sample}` }, ranks.join(" "));
      square.style.setProperty("--first", `var(--rank-${ranks[0]})`);
      square.style.setProperty("--last", `var(--rank-${ranks.at(-1)})`);
      if (ranks.length > 1) square.className = "twice";
      return square;
    });
    const words = hand.map((samples, rank) => `rank ${rank}: ${samples.join(", ")}`);
    const squaresBox = play.make("div", { role: "img", ariaLabel: `samples of ${words.join("; ")}` }, ...squares);
    return [play.make("b", {}, `epoch ${epoch + 1}`), squaresBox];
  }

  function say(hands) {
    const [first] = hands, n = world.value, repeated = n * first[0].length - 32;
    const seen = new Set(hands.flatMap((hand) => hand[0])).size;
    let text = use.checked ? "Every epoch deals the samples anew. " : "Every epoch is the same. ";
    const these = epochs.value > 1 ? `these ${epochs.value} epochs` : "this epoch";
    text += `Rank 0 has ${first[0].length} samples per epoch, and in ${these} ${seen} of the 32.`;
    if (repeated) {
      text += ` 32 is not a multiple of ${n}, so ${repeated} sample${repeated > 1 ? "s are" : " is"} dealt twice.`;
    }
    status.textContent = text;
  }

  return { controls: [world.box, epochs.box, play.make("div", {}, use, label)], drawing, status };
};
