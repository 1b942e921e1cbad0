// Runs the packaged problem matchers over lines read from stdin, as VS Code does and as the
// GitHub runner does with its ECMAScript option: `new RegExp(text)`, one match per line.
// In: {"pattern": {...}, "lines": [...]}. Out: [{"groups": {...} | null, "milliseconds": n}].
import { readFileSync } from "node:fs";

const { pattern, lines } = JSON.parse(readFileSync(0, "utf8"));
const regexp = new RegExp(pattern.regexp);
const names = ["file", "line", "column", "severity", "code", "message"];

const results = lines.map((line) => {
  const started = process.hrtime.bigint();
  const match = regexp.exec(line);
  const milliseconds = Number(process.hrtime.bigint() - started) / 1e6;
  const groups = match && Object.fromEntries(names.map((name) => [name, match[pattern[name]]]));
  return { groups, milliseconds };
});
console.log(JSON.stringify(results));
