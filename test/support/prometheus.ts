import assert from 'node:assert/strict';

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
 * histogram increase, and the last is its count. Uses plain assertions: `expect` for each of the thousands of lines that
 * a process of many test servers has takes a second, in which these servers send no heartbeats.
 */
export class Exposition {
  readonly samples: Sample[] = [];
  readonly families = new Map<string, Family>();

  constructor(text: string) {
    assert(text.endsWith('\n'));
    const seen = new Set<string>();
    let current: string | undefined;
    let help: { name: string; text: string } | undefined;
    for (const line of text.split('\n').slice(0, -1)) {
      if (line === '') continue;
      const [, keyword, name = '', rest = ''] = /^# (HELP|TYPE) (\S+)(?: (.*))?$/.exec(line) ?? [];
      if (keyword === 'HELP') {
        help = { name, text: rest };
      } else if (keyword === 'TYPE') {
        assert(NAME.test(name), line);
        assert(help?.name === name, `${line} has no help`);
        assert(!this.families.has(name), `${name} comes twice`);
        assert(rest in SUFFIXES, line);
        this.families.set(name, { type: rest, help: help?.text ?? '' });
        current = name;
      } else {
        const sample = sampleOf(line);
        this.#belongs(sample, current);
        const key = sample.name + keyOf(sample.labels);
        assert(!seen.has(key), `${key} comes twice`);
        seen.add(key);
        this.samples.push(sample);
      }
    }
    this.#checkHistograms();
  }

  /** The value of the one sample with this name and at least these labels; undefined if there is none. */
  value(name: string, labels: Record<string, string> = {}): number | undefined {
    const found = this.all(name, labels);
    assert(found.length < 2, `${name} ${JSON.stringify(labels)} has several samples`);
    return found[0]?.value;
  }

  all(name: string, labels: Record<string, string> = {}): Sample[] {
    const isMeant = (sample: Sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value);
    return this.samples.filter((sample) => sample.name === name && isMeant(sample));
  }

  #belongs({ name }: Sample, current: string | undefined): void {
    const { type = '' } = this.families.get(current ?? '') ?? {};
    const names = (SUFFIXES[type] ?? []).map((suffix) => `${current}${suffix}`);
    assert(names.includes(name), `${name} stands among the samples of ${current}`);
    if (type === 'counter') assert(name.endsWith('_total'), name);
  }

  #checkHistograms(): void {
    for (const [name, { type }] of this.families) {
      if (type !== 'histogram') continue;
      const series = Map.groupBy(this.all(`${name}_bucket`), ({ labels }) => keyOf({ ...labels, le: '' }));
      for (const [key, buckets] of series) {
        const bounds = buckets.map(({ labels }) => (labels['le'] === '+Inf' ? Infinity : Number(labels['le'])));
        assert.deepEqual(
          bounds,
          bounds.toSorted((a, b) => a - b),
          name,
        );
        assert(bounds.at(-1) === Infinity, name);
        const counts = buckets.map(({ value }) => value);
        assert.deepEqual(
          counts,
          counts.toSorted((a, b) => a - b),
          name,
        );
        const total = this.all(`${name}_count`).find((sample) => keyOf({ ...sample.labels, le: '' }) === key);
        assert(total?.value === counts.at(-1), `${name} ${key}`);
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
  assert(NAME.test(name), line);
  assert(VALUE.test(value), line);
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < body.length) {
    const [, key = '', text = ''] = LABEL.exec(body) ?? [];
    assert(key !== '', line);
    assert(!(key in labels), line);
    labels[key] = text.replaceAll(/\\([\\"n])/g, (_, char: string) => (char === 'n' ? '\n' : char));
  }
  return { name, labels, value: numberOf(value) };
}

function numberOf(value: string): number {
  if (value === '+Inf') return Infinity;
  return value === '-Inf' ? -Infinity : Number(value);
}
