import type { HiddenTexts } from '../kernel/kernel.ts';
import { referencesIn, withValues } from '../../../spec/kernel-env.ts';

/** The environment variables of an agent's code. */
export interface KernelVariables {
  env: Record<string, string>;
  /** The values of this host that it contains. */
  hidden: HiddenValue[];
}

interface HiddenValue {
  name: string;
  value: string;
}

export interface HostVariables {
  /** The variables to which agents may refer. */
  names: readonly string[];
  env: NodeJS.ProcessEnv;
}

/** Shorter values are not hidden: they occur in many texts, which would become unreadable, and are no secrets. */
const MIN_LENGTH = 4;

/**
 * The environment that an agent defines for its code, with the values of the host variables to which it refers.
 *
 * @throws Error with the name of a variable that the host lacks, or does not permit
 */
export function kernelVariables(given: Record<string, string>, { names, env }: HostVariables): KernelVariables {
  const valueOf = (name: string): string => {
    const value = env[name];
    if (!names.includes(name)) throw new Error(`EVERTURN_KERNEL_ENV of the kernel host does not list ${name}`);
    if (value === undefined) throw new Error(`the kernel host has no variable ${name}: its operator has to set it`);
    if (value.length < MIN_LENGTH)
      throw new Error(`the variable ${name} of the kernel host has less than ${MIN_LENGTH} characters`);
    return value;
  };
  const entries = Object.entries(given).map(([name, value]) => [name, withValues(value, valueOf)] as const);
  const referred = new Set(Object.values(given).flatMap(referencesIn));
  return {
    env: Object.fromEntries(entries),
    hidden: [...referred].flatMap((name) => formsOf(valueOf(name)).map((value) => ({ name, value }))),
  };
}

/**
 * The values of this host that any code or command of a sandbox has had. They remain hidden after a change of the
 * agent, which the files and kernels of the sandbox outlast.
 */
export class HiddenValues implements HiddenTexts {
  #hidden: HiddenValue[] = [];

  get values(): string[] {
    return this.#hidden.map(({ value }) => value);
  }

  /** The names of the variables whose values these are. */
  get names(): string[] {
    return [...new Set(this.#hidden.map(({ name }) => name))];
  }

  add(hidden: readonly HiddenValue[]): void {
    const added = hidden.filter(({ value }) => this.#hidden.every((known) => known.value !== value));
    // One value may be a part of another.
    this.#hidden = [...this.#hidden, ...added].toSorted((a, b) => b.value.length - a.value.length);
  }

  /** A text in which each value is `[NAME]`. */
  mask(text: string): string {
    return this.#hidden.reduce((shown, { name, value }) => shown.replaceAll(value, `[${name}]`), text);
  }
}

/** A value as plain text, and in JSON, HTML and Python's `repr`: tool arguments are JSON, displays are all of them. */
function formsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const ascii = json.replaceAll(/[\u0080-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const html = value.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
  const quoted = value.replaceAll('\\', '\\\\');
  return [
    ...new Set([value, json, ascii, html, html.replaceAll('"', '&quot;'), quoted, quoted.replaceAll("'", "\\'")]),
  ];
}
