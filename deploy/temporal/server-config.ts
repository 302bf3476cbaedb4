import { DYNAMIC_CONFIG } from '../../src/temporal-server/dynamic-config.ts';
import type { PostgresAccess } from './postgres-access.ts';
import { DATABASES, SQL_PLUGIN } from './schemas.ts';

/** The ports of a server's parts, with Temporal's standard distances. Only the frontend is for clients. */
export function portsOf(frontend: number) {
  const service = (grpcPort: number) => ({ grpcPort, membershipPort: grpcPort - 300 });
  return {
    frontend: service(frontend),
    history: service(frontend + 1),
    matching: service(frontend + 2),
    worker: service(frontend + 6),
  };
}

interface ServerConfigOptions {
  access: PostgresAccess;
  /** The frontend's address and port. */
  host: string;
  port: number;
  /** Stored in the database at the first start, and cannot be changed later. */
  historyShards: number;
  dynamicConfigFile: string;
}

const LOOPBACK = '127.0.0.1';
/** The maximum number of one server's connections to each database. */
const CONNECTIONS = { store: 20, visibility: 10 };

/** The server's configuration: all of Temporal's services in one process, on PostgreSQL. */
export function serverConfig({ access, host, port, historyShards, dynamicConfigFile }: ServerConfigOptions) {
  const ports = portsOf(port);
  const frontend = `${LOOPBACK}:${port}`;
  const rpc = (service: keyof typeof ports) => ({
    rpc: { ...ports[service], bindOnIP: service === 'frontend' ? host : LOOPBACK },
  });
  return {
    log: { stdout: true, level: 'warn' },
    persistence: {
      numHistoryShards: historyShards,
      defaultStore: 'store',
      visibilityStore: 'visibility',
      datastores: { store: { sql: sqlStore(access, 'store') }, visibility: { sql: sqlStore(access, 'visibility') } },
    },
    global: { membership: { maxJoinDuration: '30s', broadcastAddress: LOOPBACK } },
    services: {
      frontend: rpc('frontend'),
      history: rpc('history'),
      matching: rpc('matching'),
      worker: rpc('worker'),
    },
    clusterMetadata: {
      enableGlobalNamespace: false,
      failoverVersionIncrement: 10,
      masterClusterName: 'active',
      currentClusterName: 'active',
      clusterInformation: {
        active: { enabled: true, initialFailoverVersion: 1, rpcName: 'frontend', rpcAddress: frontend },
      },
    },
    dcRedirectionPolicy: { policy: 'noop' },
    publicClient: { hostPort: frontend },
    dynamicConfigClient: { filepath: dynamicConfigFile, pollInterval: '10s' },
  };
}

function sqlStore({ host, port, user, password, tls }: PostgresAccess, database: keyof typeof DATABASES) {
  const connections = CONNECTIONS[database];
  return {
    pluginName: SQL_PLUGIN,
    databaseName: DATABASES[database].name,
    connectAddr: `${host}:${port}`,
    connectProtocol: 'tcp',
    user,
    password,
    maxConns: connections,
    maxIdleConns: connections,
    maxConnLifetime: '1h',
    ...(tls && { tls: { enabled: true, enableHostVerification: tls.verify, caFile: tls.caFile } }),
  };
}

/** The settings that make a server fast enough for turns, in the format of its file: a list of values per key. */
export function dynamicConfig(): Record<string, { value: string | number | boolean }[]> {
  return Object.fromEntries(Object.entries(DYNAMIC_CONFIG).map(([key, value]) => [key, [{ value }]]));
}
