import { appendFile, readFile } from 'node:fs/promises';

/** The figures of a scenario whose invariants all held. */
export interface Figures {
  faults: number;
  turns: number;
  effects: number;
  /** How long readers waited for the next word after a fault, in milliseconds. */
  resumed: number[];
}

/** The variable with the file in which `npm run test:faults` collects them. */
export const FIGURES_FILE = 'EVERTURN_FAULT_FIGURES';

export async function report(figures: Figures): Promise<void> {
  const file = process.env[FIGURES_FILE];
  if (file) await appendFile(file, `${JSON.stringify(figures)}\n`);
}

/** A summary of all scenarios that wrote to a file, in a sentence each. */
export async function summary(file: string): Promise<string> {
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n').filter(Boolean);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `report`
  const all = lines.map((line) => JSON.parse(line) as Figures);
  const sum = (of: (figures: Figures) => number): number => all.reduce((total, figures) => total + of(figures), 0);
  const resumed = all.flatMap((figures) => figures.resumed).toSorted((a, b) => a - b);
  const seconds = (ms = NaN): string => (ms / 1000).toFixed(2);
  return [
    `${all.length} scenarios: ${sum(({ faults }) => faults)} faults, ${sum(({ turns }) => turns)} turns, ${sum(({ effects }) => effects)} effects; all invariants held in each.`,
    ...(resumed.length > 0
      ? [
          `${resumed.length} resumptions: ${seconds(resumed[Math.floor(resumed.length / 2)])} s in the median, ${seconds(resumed.at(-1))} s at worst.`,
        ]
      : []),
  ].join('\n');
}
