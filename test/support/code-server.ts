import { expect } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { eventually } from './eventually.ts';
import { kernelPython } from './kernel-python.ts';
import { startTestServer, type TestServer, type TestServerOptions } from './test-server.ts';

/** An agent that acts in code without approvals. */
export const FREE = { code_actions: { approvals: 'allow' as const } };

/**
 * A server whose kernel host can start kernels: as many as the tests of a file use together, since one that is idle is
 * evicted for another session.
 */
export async function startCodeServer(
  env: Record<string, string> = {},
  options: Pick<TestServerOptions, 'mcp' | 'log'> = {},
): Promise<TestServer> {
  const server = await startTestServer({
    ...options,
    env: { EVERTURN_KERNELS: '30', EVERTURN_KERNEL_PYTHON: await kernelPython(), ...env },
  });
  // The first agent that acts in code starts the host.
  await server.api.putAgent(newId('req'), { model: { name: 'any' }, ...FREE });
  await untilHosted(server);
  return server;
}

/** Resolves with the name of a kernel host that is ready, other than the one that was `lost`. */
export async function untilHosted(server: TestServer, lost = ''): Promise<string> {
  const hosts = server.database.rows.selectFrom('kernel_hosts').select(['host', 'state', 'reason']);
  const find = async () => {
    const [first, ...more] = await hosts.where('host', '!=', lost).execute();
    expect([first, more]).toMatchObject([{ state: 'ready', reason: null }, []]);
    return first?.host ?? '';
  };
  return eventually(find);
}
