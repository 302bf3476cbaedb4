import { expect } from 'vitest';

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

interface Family {
  type: string;
  help: string;
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)/y;
const VALUE = /^(?:[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[+-]Inf|NaN)$/;
const SUFFIXES: Record<string, string[]> = {
  counter: [''],
  gauge: [''],
  histogram: ['_bucket', '_sum', '_count'],
  summary: ['', '_sum', '_count'],
};

/**
 * Parses Prometheus' text format 0.0.4 as strictly as its description allows: every family has its help and its type,
 * once and before its samples, which are consecutive; no sample is repeated; counters end in `_total`; the buckets of a
 * histogram increase, and the last is its count.
 */
export class Exposition {
  readonly samples: Sample[] = [];
  readonly families = new Map<string, Family>();

  constructor(text: string) {
    expect(text.endsWith('\n')).toBe(true);
    const seen = new Set<string>();
    let current: string | undefined;
    let help: { name: string; text: string } | undefined;
    for (const line of text.split('\n').slice(0, -1)) {
      if (line === '') continue;
      const [, keyword, name = '', rest = ''] = /^# (HELP|TYPE) (\S+)(?: (.*))?$/.exec(line) ?? [];
      if (keyword === 'HELP') {
        help = { name, text: rest };
      } else if (keyword === 'TYPE') {
        expect(NAME.test(name), line).toBe(true);
        expect(help?.name, `${line} has no help`).toBe(name);
        expect(this.families.has(name), `${name} comes twice`).toBe(false);
        expect(Object.keys(SUFFIXES), line).toContain(rest);
        this.families.set(name, { type: rest, help: help?.text ?? '' });
        current = name;
      } else {
        const sample = sampleOf(line);
        this.#belongs(sample, current);
        const key = sample.name + keyOf(sample.labels);
        expect(seen.has(key), `${key} comes twice`).toBe(false);
        seen.add(key);
        this.samples.push(sample);
      }
    }
    this.#checkHistograms();
  }

  /** The value of the one sample with this name and at least these labels; undefined if there is none. */
  value(name: string, labels: Record<string, string> = {}): number | undefined {
    const found = this.all(name, labels);
    expect(found.length, `${name} ${JSON.stringify(labels)}`).toBeLessThan(2);
    return found[0]?.value;
  }

  all(name: string, labels: Record<string, string> = {}): Sample[] {
    const isMeant = (sample: Sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value);
    return this.samples.filter((sample) => sample.name === name && isMeant(sample));
  }

  #belongs({ name }: Sample, current: string | undefined): void {
    const { type = '' } = this.families.get(current ?? '') ?? {};
    const names = (SUFFIXES[type] ?? []).map((suffix) => `${current}${suffix}`);
    expect(names, `${name} stands among the samples of ${current}`).toContain(name);
    if (type === 'counter') expect(name).toMatch(/_total$/);
  }

  #checkHistograms(): void {
    for (const [name, { type }] of this.families) {
      if (type !== 'histogram') continue;
      const series = Map.groupBy(this.all(`${name}_bucket`), ({ labels }) => keyOf({ ...labels, le: '' }));
      for (const [key, buckets] of series) {
        const bounds = buckets.map(({ labels }) => (labels['le'] === '+Inf' ? Infinity : Number(labels['le'])));
        expect(bounds, name).toEqual(bounds.toSorted((a, b) => a - b));
        expect(bounds.at(-1), name).toBe(Infinity);
        const counts = buckets.map(({ value }) => value);
        expect(counts, name).toEqual(counts.toSorted((a, b) => a - b));
        const total = this.all(`${name}_count`).find((sample) => keyOf({ ...sample.labels, le: '' }) === key);
        expect(total?.value, `${name} ${key}`).toBe(counts.at(-1));
      }
    }
  }
}

/** Equal for equal labels, in any order. */
function keyOf(labels: Record<string, string>): string {
  return JSON.stringify(Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

function sampleOf(line: string): Sample {
  const [, name = '', , body = '', value = ''] = /^([^\s{]+)(\{(.*)\})? (\S+)$/.exec(line) ?? [];
  expect(NAME.test(name), line).toBe(true);
  expect(VALUE.test(value), line).toBe(true);
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < body.length) {
    const [, key = '', text = ''] = LABEL.exec(body) ?? [];
    expect(key, line).not.toBe('');
    expect(labels, line).not.toHaveProperty(key);
    labels[key] = text.replaceAll(/\\([\\"n])/g, (_, char: string) => (char === 'n' ? '\n' : char));
  }
  return { name, labels, value: numberOf(value) };
}

function numberOf(value: string): number {
  if (value === '+Inf') return Infinity;
  return value === '-Inf' ? -Infinity : Number(value);
}
