import type { Services } from './services.ts';

const TIMEOUT_MS = 2_000;

/** Finds out whether something works: throws if not. */
export type Check = [problem: string, check: () => Promise<unknown>];

/** What is wrong with what the API and the worker stand on, and with what else is given. */
export async function problemsOf(
  { catalog, blobs, client }: Pick<Services, 'catalog' | 'blobs' | 'client'>,
  ...more: Check[]
): Promise<string[]> {
  const { connection, options } = client;
  const checks: Check[] = [
    ['the catalog can not be written', () => catalog.check(new Date().toISOString())],
    ['the blob store can not be written', () => blobs.check()],
    [
      'Temporal can not be reached',
      () =>
        connection.withDeadline(Date.now() + TIMEOUT_MS, () =>
          connection.workflowService.describeNamespace({ namespace: options.namespace }),
        ),
    ],
    ...more,
  ];
  const problems = await Promise.all(
    checks.map(async ([problem, check]) => {
      try {
        await check();
        return [];
      } catch (error) {
        return [`${problem}: ${error instanceof Error ? error.message : String(error)}`];
      }
    }),
  );
  return problems.flat();
}
