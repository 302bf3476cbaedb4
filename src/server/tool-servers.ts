import type { Logger } from 'pino';
import { signInUrls } from '../api/sessions/sign-ins.ts';
import type { Keyring } from '../auth/api-keys.ts';
import type { Config } from '../config.ts';
import { SessionWatches } from '../features/session-stream/session-watches.ts';
import { SignIns } from '../features/sign-in/sign-ins.ts';
import type { LiveBus } from '../live/bus.ts';
import { McpPool } from '../mcp/pool.ts';
import { ProgramRecords } from '../mcp/program-records.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import type { WatchSession } from '../mcp/session-uses.ts';
import type { Stores } from './stores.ts';

interface ToolServersOptions extends Pick<Stores, 'catalog' | 'logs'> {
  config: Config;
  log: Logger;
  registry: McpRegistry;
  bus: LiveBus;
  keyring: Keyring;
  /** Where users reach the API. */
  publicUrl: string | undefined;
  /** Tools of servers that keep state for a connection are only listed in this process, not called. */
  onlyLists: boolean;
}

/** Opens the connections to the MCP servers of agents, with the sign-ins of users to them. */
export async function openToolServers({ config, log, registry, bus, keyring, publicUrl, ...more }: ToolServersOptions) {
  await using cleanup = new AsyncDisposableStack();
  const { catalog, logs, onlyLists } = more;
  /** Whether URLs from clients may currently resolve to private addresses. */
  const allowPrivateUrls = () => config.allowPrivateUrls ?? keyring.isKeyless;
  const urls = signInUrls(publicUrl);
  const signIns = new SignIns({ catalog, logs, registry, urls, allowPrivateUrls, log });
  cleanup.defer(() => signIns.close());
  const sessionWatches = new SessionWatches({ catalog, bus, log });
  const watchSession: WatchSession = (sessionId, onDeleted) => sessionWatches.watch(sessionId, onDeleted);
  const programs = await ProgramRecords.open(config.dataDir, log);
  /** The settings of all connections. */
  const pool = { ...config.mcp, allowPrivateUrls, grants: signIns.grants, programs, log };
  const areAwaited = (sessionIds: string[]) => catalog.actions.isAnyPending(sessionIds);
  const toolPool = new McpPool({ ...pool, watchSession, areAwaited, onlyLists });
  cleanup.defer(() => toolPool.close());
  const opened = cleanup.move();
  return { allowPrivateUrls, signIns, sessionWatches, pool, toolPool, close: () => opened.disposeAsync() };
}
