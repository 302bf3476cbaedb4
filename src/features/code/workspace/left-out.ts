import { shown } from './workspace-path.ts';

/** The number of paths in a notice. */
const MAX_EXAMPLES = 3;

/** Paths of a workspace that are not stored or not restored, by reason. */
export class LeftOut {
  readonly #byReason = new Map<string, { count: number; examples: string[] }>();

  add(reason: string, path: string): void {
    const known = this.#byReason.get(reason) ?? { count: 0, examples: [] };
    this.#byReason.set(reason, known);
    known.count += 1;
    if (known.examples.length < MAX_EXAMPLES) known.examples.push(shown(path));
  }

  /** One line for each reason. `what`: what happened to the paths. */
  notices(what: 'not stored' | 'not changed by a client' | 'lost'): string[] {
    return [...this.#byReason].map(([reason, { count, examples }]) => {
      const more = count > examples.length ? ` and ${count - examples.length} more` : '';
      return `${what}: ${examples.join(', ')}${more}: ${reason}`;
    });
  }
}
