// SPDX-License-Identifier: BSD-3-Clause
// A button on each block of code that copies it: of a session, what was typed.

function typed(block, text) {
  const prompts = block.closest(".highlight-pycon") ? [">>> ", "... "]
    : block.closest(".highlight-console") ? ["$ "] : [];
  if (prompts.length === 0) return text;
  const lines = text.split("\n").filter((line) => prompts.includes(line.slice(0, prompts[0].length)));
  return lines.map((line) => line.slice(prompts[0].length)).join("\n") + "\n";
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(typed(block, block.querySelector("pre").textContent));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
});
