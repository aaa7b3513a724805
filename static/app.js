"use strict";
// Everything here is comfort: each page works without it.
(() => {
  const $ = (sel, from = document) => from.querySelector(sel);
  const $$ = (sel, from = document) => [...from.querySelectorAll(sel)];
  const on = (type, f, capture) => document.addEventListener(type, f, capture);

  // Live pages. A hidden tab does not ask; an answer that is a refusal or the
  // sign-in page is not swapped in; a server that is away is said, not hidden.
  on("htmx:before:request", (e) => {
    if (document.hidden || $("#main details[open] form")) e.preventDefault();
  });
  const fresh = (ok) => document.body.classList.toggle("stale", !ok);
  on("htmx:before:response", (e) => {
    const raw = e.detail?.ctx?.response?.raw;
    if (!raw) return;
    if (raw.redirected || [401, 403, 404].includes(raw.status)) {
      e.preventDefault();
      location.reload(); // signed out or no longer to be seen: the page says so itself
      return;
    }
    fresh(raw.status < 400);
  });
  on("htmx:error", () => fresh(false));

  // The card: what a part of a picture or a word means, on hover and focus.
  const tip = $("#tip");
  const textOf = (el) => {
    const title = $(":scope > title", el);
    if (title) {
      el.dataset.tip = title.textContent;
      title.remove(); // else the browser shows it a second time
    }
    return el.dataset.tip;
  };
  const show = (e) => {
    const el = e.target.closest?.("[data-tip], .part, svg[role=img]");
    const text = el && textOf(el);
    if (!text) return;
    tip.textContent = text;
    tip.hidden = false;
    const at = el.getBoundingClientRect(), me = tip.getBoundingClientRect();
    const below = at.bottom + 8 + me.height < innerHeight;
    tip.style.left = Math.max(8, Math.min(at.left, innerWidth - me.width - 8)) + "px";
    tip.style.top = (below ? at.bottom + 8 : Math.max(8, at.top - me.height - 8)) + "px";
  };
  const hide = () => { tip.hidden = true; };
  if (tip) {
    on("pointerover", show);
    on("pointerout", hide);
    on("focusin", show);
    on("focusout", hide);
    on("keydown", (e) => { if (e.key === "Escape") hide(); });
    addEventListener("scroll", hide, { passive: true });
  }

  // Copies carry exact values: one number gives its exact text, rows of a table
  // give cells split by tabs.
  const exact = (el) => {
    const copy = el.cloneNode(true);
    for (const n of $$("[data-exact]", copy)) n.textContent = n.dataset.exact;
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  on("copy", (e) => {
    const sel = getSelection();
    if (!sel.rangeCount || sel.isCollapsed) return;
    const range = sel.getRangeAt(0);
    const within = range.commonAncestorContainer;
    const box = within.nodeType === 1 ? within : within.parentElement;
    const one = box?.closest("[data-exact]");
    let text = "";
    if (one) text = one.dataset.exact;
    else if (box?.closest("table")) {
      const rows = $$("tr", box.closest("table")).filter((tr) => range.intersectsNode(tr));
      text = rows.map((tr) => [...tr.cells].filter((c) => range.intersectsNode(c)).map(exact).join("\t")).join("\n");
    }
    if (text) {
      e.clipboardData.setData("text/plain", text);
      e.preventDefault();
    }
  });

  // Node grid: one tab stop per grid, arrows go from device to device.
  const rove = (grid) => $$(".squares .part", grid).forEach((p, i) => p.setAttribute("tabindex", i ? "-1" : "0"));
  $$("[data-roving]").forEach(rove);
  on("htmx:after:swap", () => $$("[data-roving]").forEach((g) => {
    if (!g.contains(document.activeElement)) rove(g);
  }));
  on("keydown", (e) => {
    const part = e.target.closest?.(".squares .part");
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 8, ArrowUp: -8 }[e.key];
    if (!part || !step) return;
    const all = $$(".squares .part", part.closest("[data-roving]"));
    const next = all[all.indexOf(part) + step];
    if (!next) return;
    e.preventDefault();
    part.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });

  // Output follows its end until somebody scrolls up to read.
  const logs = () => $$("pre.log");
  let following = true;
  logs().forEach((l) => { l.scrollTop = l.scrollHeight; });
  on("htmx:before:swap", () => { following = logs().every((l) => l.scrollHeight - l.scrollTop - l.clientHeight < 24); });
  on("htmx:after:swap", () => { if (following) logs().forEach((l) => { l.scrollTop = l.scrollHeight; }); });

  // The first thing after a refusal is what to change.
  $(".refusals[role=alert]")?.focus();

  // Presets fill the contract without losing what was typed elsewhere.
  on("click", (e) => {
    const a = e.target.closest("a[data-preset]");
    const form = a?.closest("form");
    if (!form || e.metaKey || e.ctrlKey) return;
    e.preventDefault();
    for (const at of a.attributes) {
      if (at.name.startsWith("data-set-")) form.elements[at.name.slice(9)].value = at.value;
    }
    $$("a[data-preset]", form).forEach((x) => x.removeAttribute("aria-current"));
    a.setAttribute("aria-current", "true");
  });

  // Buttons are named by their effect.
  const group = (n) => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  const number = (s) => {
    const n = Number(String(s).replace(/[\s\u2009\u202f,_]/g, ""));
    return Number.isFinite(n) ? n : 0;
  };
  const hours = (n) => group(Math.floor(n)) + (n % 1 ? (n % 1).toFixed(2).slice(1) : "");
  const name = (form) => {
    const ask = $("[data-ask]", form), award = $("[data-award]", form), job = $("[data-submit-job]", form);
    const sum = (prefix) => $$(`input[name^=${prefix}_]`, form).reduce((n, i) => n + number(i.value), 0);
    if (ask && sum("hours") > 0) ask.textContent = `Ask for ${hours(sum("hours"))} GPU-h`;
    if (award && sum("award") > 0) award.textContent = `Award ${hours(sum("award"))} GPU-h`;
    if (job) {
      const n = number(form.elements.nodes.value), g = number(form.elements.gpus.value);
      const many = (form.elements.array?.value ?? "").trim();
      if (many) job.textContent = `Submit array ${many}`;
      else if (n && g) job.textContent = n > 1 ? `Submit ${n} × ${g} GPUs` : `Submit ${g} GPU${g > 1 ? "s" : ""}`;
    }
  };

  // Split form: the other unit beside each part, and what is left of the pot.
  // Whole milli-GPU-hours; the server's rounding decides, this only shows it.
  const split = (form, switched) => {
    const pot = Number(form.dataset.pot);
    const percent = form.elements.mode.value === "percent";
    let sum = 0;
    for (const part of $$("[data-split-part]", form)) {
      if (switched && part.value.trim() !== "") {
        const v = number(part.value);
        part.value = percent ? String(+(v * 1000 / pot * 100).toFixed(4)) : String(+(pot * v / 100 / 1000).toFixed(3));
      }
      const v = number(part.value);
      const milli = percent ? pot * v / 100 : v * 1000;
      sum += milli;
      $("[data-split-other]", part.closest("tr")).textContent =
        percent ? `${hours(+(milli / 1000).toFixed(2))} GPU-h` : `${pot ? +(milli / pot * 100).toFixed(2) : 0} %`;
    }
    $("[data-split-head]", form).textContent = percent ? "Percent" : "GPU-h";
    $("[data-split-sum]", form).textContent = percent ? `${pot ? +(sum / pot * 100).toFixed(2) : 0} %` : hours(+(sum / 1000).toFixed(2));
    const left = pot - sum;
    $("[data-split-left]", form).textContent = left < -0.5 ? `${hours(+(-left / 1000).toFixed(2))} GPU-h too much` : `${hours(+(Math.max(left, 0) / 1000).toFixed(2))} GPU-h left`;
  };
  $$("form[data-split]").forEach((f) => split(f, false));
  $$("form").forEach(name);
  on("change", (e) => {
    const form = e.target.form;
    if (form?.matches("[data-split]") && e.target.name === "mode") split(form, true);
  });
  on("input", (e) => {
    const form = e.target.form;
    if (!form) return;
    if (form.matches("[data-split]") && e.target.name !== "mode") split(form, false);
    name(form);
  });
})();
