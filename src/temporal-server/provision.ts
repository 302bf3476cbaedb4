import { Connection } from '@temporalio/client';
import { msToNumber, msToTs, optionalTsToMs } from '../temporal/sdk-internals.ts';
import type { ClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnectionOptions } from '@temporalio/worker';
import type { Logger } from 'pino';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { findTemporalBinary } from './find-cli.ts';
import type { InstallerName } from './installers.ts';
import type { DynamicConfig } from './dynamic-config.ts';
import { startEmbeddedTemporal } from './embedded-server.ts';
import { NEVER_ABORTED, waitOrAbort } from '../lib/abort.ts';
import { isNotFound, isTemporalUnavailable } from '../temporal/errors.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';

interface ProvisionOptions {
  dataDir: string;
  cacheDir: string;
  /** Unset: an embedded server. */
  external: ClientConnectConfig | undefined;
  namespace: string;
  log: Logger;
  /** For the embedded server; default `normal`. */
  sqliteSync?: SqliteSync;
  /** For the embedded server, in addition to its standard settings. */
  dynamicConfig?: DynamicConfig;
  env?: NodeJS.ProcessEnv;
  /** The ways in which the embedded server's program may be installed, in the order in which they are tried. */
  installers: readonly InstallerName[];
  /** Gives up the start of the embedded server. */
  signal?: AbortSignal;
}

/** A Temporal server with a usable namespace. */
export interface ProvisionedTemporal {
  /** For clients and workers. */
  connectionOptions: NativeConnectionOptions;
  namespace: string;
  embedded: boolean;
  /** Stops the embedded server; an external one is left running. */
  stop: () => Promise<void>;
}

/** How long Everturn's own servers keep the histories of closed turns. The embedded one's default is a day. */
export const RETENTION = '3650d';

const EXTERNAL_MS = 5000;

/**
 * Provides a Temporal server with the namespace: the configured external one, else the embedded one, for which the caller
 * holds the lock of the data folder.
 *
 * @throws ProvisionError
 */
export async function provisionTemporal(options: ProvisionOptions): Promise<ProvisionedTemporal> {
  const { dataDir, cacheDir, external, namespace, log, env = process.env, installers, ...settings } = options;
  const { signal = NEVER_ABORTED } = settings;
  if (external) {
    const { connectionOptions } = external;
    await checkExternal(connectionOptions, namespace);
    return { connectionOptions, namespace, embedded: false, stop: () => Promise.resolve() };
  }
  const binary = await waitOrAbort(findTemporalBinary({ cacheDir, env, installers, log }), signal);
  const { address, stop } = await startEmbeddedTemporal({ ...settings, dataDir, binary, namespace, log });
  try {
    await setRetention(address, namespace);
  } catch (error) {
    await stop();
    throw error;
  }
  return { connectionOptions: { address }, namespace, embedded: true, stop };
}

async function setRetention(address: string, namespace: string): Promise<void> {
  const connection = await Connection.connect({ address });
  try {
    const { workflowService } = connection;
    const { config } = await workflowService.describeNamespace({ namespace });
    if ((optionalTsToMs(config?.workflowExecutionRetentionTtl) ?? 0) >= msToNumber(RETENTION)) return;
    await workflowService.updateNamespace({ namespace, config: { workflowExecutionRetentionTtl: msToTs(RETENTION) } });
  } finally {
    await connection.close();
  }
}

async function checkExternal(options: NativeConnectionOptions, namespace: string): Promise<void> {
  const { address = '' } = options;
  const connection = Connection.lazy(options);
  const { workflowService } = connection;
  try {
    // The client retries until the deadline, because the server may be starting as well.
    await connection.withDeadline(Date.now() + EXTERNAL_MS, () => workflowService.describeNamespace({ namespace }));
  } catch (cause) {
    throw new ProvisionError(externalProblem(cause, address, namespace), { cause });
  } finally {
    await connection.close();
  }
}

function externalProblem(error: unknown, address: string, namespace: string): string {
  if (isNotFound(error)) {
    return (
      `the Temporal server at TEMPORAL_ADDRESS ${address} has no namespace ${namespace}: set TEMPORAL_NAMESPACE ` +
      `to an existing one, or create it, on your own server with\n` +
      `  temporal operator namespace create --address ${address} --namespace ${namespace} --retention 90d`
    );
  }
  const details = errorMessage(error);
  if (isTemporalUnavailable(error)) {
    return (
      `no Temporal server answers at TEMPORAL_ADDRESS ${address} within ${EXTERNAL_MS / 1000} s (${details}): ` +
      `check that it is running and reachable from here, and whether it requires TLS (TEMPORAL_TLS); ` +
      `without TEMPORAL_ADDRESS Everturn runs its own server`
    );
  }
  return (
    `the Temporal server at TEMPORAL_ADDRESS ${address} rejects the connection (${details}): ` +
    `check TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and TEMPORAL_TLS_*`
  );
}
