// Which layout trains a model fastest on so many GPUs: parallel/scale/costs.py and choose.py, in
// their words and order. tests/site/test_play.py compares the two.
play.figures.scale = () => {
  const HALF = 2, FULL = 4, ROOM = 0.9, LONG = 16384, NODE = 8, SHARE = 0.4, CONTEXT = 8192;
  const llama = (layers, width, heads, hidden) =>
    ({ layers, width, heads, kvHeads: 8, hidden, vocab: 128256, gated: true, experts: 1, chosen: 1 });
  const gpt2 = (layers, width, heads) => ({ layers, width, heads, kvHeads: heads,
    hidden: 4 * width, vocab: 50257, gated: false, experts: 1, chosen: 1 });
  const models = {
    "gpt2": gpt2(12, 768, 12), "gpt2-xl": gpt2(48, 1600, 25),
    "llama3-8b": llama(32, 4096, 32, 14336), "llama3-70b": llama(80, 8192, 64, 28672),
    "llama3-405b": llama(126, 16384, 128, 53248),
    "mixtral-8x7b": { ...llama(32, 4096, 32, 14336), vocab: 32000, experts: 8, chosen: 2 },
  };
  const gpus = { a100: [80e9, 312e12, 300e9], h100: [80e9, 989e12, 450e9],
    h200: [141e9, 989e12, 450e9], b200: [180e9, 2250e12, 900e9] };
  const div = (a, b) => Math.floor(a / b);
  const sum = (numbers) => numbers.reduce((total, one) => total + one, 0);

  const kvWidth = (m) => div(m.width * m.kvHeads, m.heads);
  const expert = (m) => (m.gated ? 3 : 2) * m.width * m.hidden;
  function block(m) {
    const router = m.experts > 1 ? m.width * m.experts : 0;
    const biases = 2 * m.width + 2 * kvWidth(m) + m.hidden + m.width;
    const rest = 2 * m.width + (m.gated ? 0 : biases + 2 * m.width);
    return 2 * m.width * (m.width + kvWidth(m)) + router + m.experts * expert(m) + rest;
  }
  const outside = (m) => m.gated ? (2 * m.vocab + 1) * m.width : (m.vocab + CONTEXT + 2) * m.width;
  const flops = (m) => 6 * (m.layers * (block(m) - (m.experts - m.chosen) * expert(m)) +
    m.vocab * m.width) + 6 * m.layers * m.width * CONTEXT;
  const kept = (m) => 6 * m.width + 2 * kvWidth(m) + m.chosen * (m.gated ? 4 : 2) * m.hidden;

  const rounds = (l, w) => {
    const each = l.shards * l.replicas * w.micro;
    return w.sequences % each ? 0 : w.sequences / each;
  };

  function rate(l, dimension, on) {
    const order = ["tensor", "context", "shards", "replicas", "pipeline"];
    const inner = order.slice(0, order.indexOf(dimension === "experts" ? "shards" : dimension));
    return [...inner, dimension].reduce((apart, name) => apart * l[name], 1) <= NODE ? on.inside : on.between;
  }

  function seconds({ dimension, operation, times, numbers, width = HALF }, l, on) {
    const size = l[dimension];
    const passes = { all_reduce: 2, send: size / (size - 1) }[operation] ?? 1;
    return times * passes * (size - 1) / size * numbers * width / rate(l, dimension, on);
  }

  function gathered(m, l) {
    const shared = l.experts > 1 ? m.experts * expert(m) : 0;
    const own = l.experts < l.shards ? div(shared, l.experts) : 0;
    return div(block(m) - shared + own, l.tensor);
  }

  function messages(m, l, w) {
    const layers = div(m.layers, l.pipeline), tokens = div(w.micro * CONTEXT, l.context);
    const once = l.pipeline === 1 ? 1 : 0, again = w.recompute ? 1 : 0;
    const own = div(block(m), l.tensor), rest = div(outside(m), l.tensor * l.pipeline);
    const found = [];
    const add = (dimension, operation, times, numbers, width) =>
      found.push({ dimension, operation, times, numbers, width });
    if (l.experts > 1) add("experts", "all_to_all", (4 + 2 * again) * layers, div(tokens * m.chosen * m.width, l.tensor));
    if (l.shards > 1) {
      add("shards", "all_gather", (1 + once) * layers, gathered(m, l));
      add("shards", "all_gather", 1, rest);
      add("shards", "reduce_scatter", layers, gathered(m, l), FULL);
      add("shards", "reduce_scatter", 1, rest, FULL);
    }
    if (l.replicas > 1) add("replicas", "all_reduce", 1, div(layers * own + rest, l.shards), FULL);
    if (l.tensor > 1) {
      add("tensor", "all_gather", (4 + 2 * again) * layers + 2 * once, tokens * m.width);
      add("tensor", "reduce_scatter", (4 + again) * layers, tokens * m.width);
    }
    if (l.context > 1) {
      const pair = div(2 * w.micro * CONTEXT * kvWidth(m), l.tensor);
      add("context", "all_gather", (1 + again) * layers, pair);
      add("context", "reduce_scatter", layers, pair);
    }
    if (l.pipeline > 1) add("pipeline", "send", 2, div(tokens * m.width, l.tensor));
    return found;
  }

  function memory(m, l, w) {
    const layers = Math.ceil(m.layers / l.pipeline);
    const rest = div(outside(m), l.tensor * (l.pipeline > 1 ? 2 : 1));
    const own = layers * div(block(m), l.tensor) + rest;
    const shared = l.shards > 1 ? l.shards * l.context : 1;
    let weights = 4 * FULL * own / shared + HALF * (shared > 1 ? 2 * gathered(m, l) + rest : own);
    const whole = layers * gathered(m, l) + rest;
    if (shared > 1 && l.pipeline > 1) weights = FULL * (4 * own - whole) / shared + (HALF + FULL) * whole;
    const tokens = div(w.micro * CONTEXT, l.context);
    let perBlock = div(HALF * kept(m), l.tensor);
    if (l.context > 1) perBlock += div(HALF * 2 * kvWidth(m) * l.context, l.tensor);
    const inputs = div(HALF * m.width, l.tensor);
    const perToken = w.recompute ? layers * inputs + perBlock : layers * perBlock;
    const alive = l.pipeline > 1 ? Math.min(l.pipeline, rounds(l, w)) : 1;
    const logits = div((HALF + 2 * FULL) * m.vocab, l.tensor);
    return { weights, activations: tokens * (alive * perToken + logits) };
  }

  function step(m, l, w, on) {
    const times = rounds(l, w), split = l.tensor * l.context * l.pipeline;
    const computing = times * w.micro * CONTEXT * flops(m) / split / on.flops * (w.recompute ? 4 / 3 : 1);
    const spent = { shards: 0, replicas: 0, tensor: 0, context: 0, experts: 0, pipeline: 0 };
    for (const one of messages(m, l, w)) spent[one.dimension] += seconds(one, l, on);
    const within = times * (spent.tensor + spent.context + spent.experts + spent.pipeline);
    const bubble = (l.pipeline - 1) / times * (computing + within);
    const shards = spent.shards * (l.pipeline === 1 ? times : 1);
    const ends = { dimension: "shards", operation: "all_gather", times: 1, numbers: div(m.vocab * m.width, l.tensor) };
    const first = l.shards > 1 ? 3 * seconds(ends, l, on) : 0;
    const backward = (w.recompute ? 3 / 4 : 2 / 3) * computing / times;
    const hidden = Math.max(shards - computing, first) + Math.max(spent.replicas - backward, 0);
    return { computing, bubble, messages: within + hidden };
  }

  const powers = (most) => play.numbers(0, 19).map((n) => 2 ** n).filter((n) => n <= most);

  function* layouts(m, count) {
    for (const tensor of powers(NODE)) {
      for (const pipeline of powers(div(m.layers, 2))) {
        for (const context of powers(count)) {
          const left = count / (tensor * pipeline * context);
          const fits = m.kvHeads % tensor === 0 && (context === 1 || div(CONTEXT, context) >= LONG);
          if (!fits || left < 1 || left % 1) continue;
          for (const shards of new Set([1, left, Math.min(left, Math.max(1, div(NODE, tensor * context)))])) {
            for (const experts of new Set([1, Math.min(shards, m.experts)])) {
              if (left % shards || shards % experts) continue;
              yield { tensor, context, shards, replicas: left / shards, pipeline, experts };
            }
          }
        }
      }
    }
  }

  // The fastest that fits: { speed, layout, work, spent, size }, or nothing.
  function best(m, count, sequences, on) {
    let found;
    for (const layout of layouts(m, count)) {
      for (const micro of [4, 2, 1]) {
        for (const recompute of [false, true]) {
          const work = { sequences, micro, recompute };
          if (!rounds(layout, work)) continue;
          const size = memory(m, layout, work);
          if (sum(Object.values(size)) > ROOM * on.memory) continue;
          const spent = step(m, layout, work, on);
          const speed = sequences * CONTEXT / sum(Object.values(spent));
          if (!found || speed > found.speed) found = { speed, layout, work, spent, size };
        }
      }
    }
    return found;
  }

  function told(l) {
    const names = { tensor: "TP", context: "CP", experts: "EP", shards: "FSDP", replicas: "DDP", pipeline: "PP" };
    const parts = Object.keys(names).filter((name) => l[name] > 1).map((name) => `${names[name]} ${l[name]}`);
    return parts.join(" × ") || "1 GPU";
  }

  const select = (name, values, first) => {
    const choice = play.make("select", { id: `play-${name}` }, ...values.map((value) => play.make("option", {}, value)));
    choice.value = first;
    choice.addEventListener("change", draw);
    return { box: play.make("div", {}, play.make("label", { htmlFor: choice.id }, name), choice), get value() { return choice.value; } };
  };
  const slider = (name, values, first, unit) => play.slider(name, values, first, (value) => `${value}${unit}`, draw);
  const model = select("model", Object.keys(models), "llama3-8b"), gpu = select("GPU", Object.keys(gpus), "h100");
  const count = slider("GPUs", powers(16384), 128, "");
  const link = slider("link", [25, 50, 100, 200, 400, 800], 400, " Gbit/s");
  const sequences = slider("sequences", powers(4096), 256, "");
  const drawing = play.make("div", { className: "play-scale" }), status = play.make("p");
  draw();

  function draw() {
    const [size, peak, inside] = gpus[gpu.value];
    const on = { memory: size, flops: SHARE * peak, inside, between: link.value * 1e9 / 8 };
    const at = (n) => best(models[model.value], n, sequences.value, on);
    const found = at(count.value), before = at(count.value / 2);
    if (!found) {
      drawing.replaceChildren();
      status.textContent = "Nothing fits: more GPUs, larger ones, or more sequences, which they can share.";
      return;
    }
    const bar = (name, parts, whole) => [play.make("b", {}, name), play.make("div", { className: "lane" },
      ...Object.entries(parts).map(([part, value]) => {
        const one = play.make("i", { className: part, title: part });
        one.style.width = `${100 * value / whole}%`;
        return one;
      }))];
    const time = sum(Object.values(found.spent)), bytes = sum(Object.values(found.size));
    const percent = (value) => `${(100 * value / time).toFixed(0)} %`, GB = (value) => `${(value / 1e9).toFixed(0)} GB`;
    drawing.replaceChildren(
      ...bar(`memory of a GPU: ${GB(found.size.weights)} of weights, ${GB(found.size.activations)} of activations`, found.size, size),
      ...bar(`time of a step: ${percent(found.spent.computing)} computing, ${percent(found.spent.bubble)} bubble, ` +
        `${percent(found.spent.messages)} messages`, found.spent, time));
    const again = found.work.recompute ? ", activations computed again" : "";
    status.textContent = `Best: ${told(found.layout)}, micro-batches of ${found.work.micro}${again}: ` +
      `${Math.round(found.speed / count.value).toLocaleString("en")} tokens/s per GPU, ${GB(bytes)} of ${GB(size)}.` +
      (before ? ` Half as many GPUs are ${(100 * before.speed / found.speed).toFixed(0)} % as fast.` : "");
  }

  return { controls: [model, gpu, count, link, sequences].map((one) => one.box), drawing, status };
};
