import { beforeAll, describe, test } from 'vitest';

/** Begins something that is under way when the fault comes, and returns what follows after it. */
export type Scenario = () => Promise<() => Promise<void>>;

/** How long the beginnings with the fault, and each test, may take: a loaded machine starts processes slowly. */
const TIMEOUT_MS = 300_000;

/** Tests that share one fault, each by what it begins before: a restart of processes takes longer than all else they do. */
export function describeFault(
  name: string,
  { fault, scenarios }: { fault: () => Promise<void>; scenarios: Record<string, Scenario> },
): void {
  describe(`fault: ${name}`, () => {
    const begun = new Map<string, () => Promise<void>>();
    beforeAll(async () => {
      for (const [what, begin] of Object.entries(scenarios)) begun.set(what, await begin());
      await fault();
    }, TIMEOUT_MS);
    test.each(Object.keys(scenarios))(
      '%s',
      async (what) => {
        const goOn = begun.get(what);
        if (!goOn) throw new Error('the scenario has not begun');
        await goOn();
      },
      TIMEOUT_MS,
    );
  });
}
