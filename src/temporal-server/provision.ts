import { Connection } from '@temporalio/client';
import { msToNumber, msToTs, optionalTsToMs } from '@temporalio/common/lib/time.js';
import type { ClientConnectConfig } from '@temporalio/envconfig';
import type { NativeConnectionOptions } from '@temporalio/worker';
import type { Logger } from 'pino';
import type { SqliteSync } from '../catalog/sqlite.ts';
import { findTemporalBinary } from './find-cli.ts';
import type { DynamicConfig } from './dynamic-config.ts';
import { startEmbeddedTemporal } from './embedded-server.ts';
import { isNotFound, isTemporalUnavailable } from '../temporal/errors.ts';
import { errorMessage, ProvisionError } from '../lib/errors.ts';

export interface ProvisionOptions {
  dataDir: string;
  cacheDir: string;
  /** Unset: an embedded server. */
  external: ClientConnectConfig | undefined;
  namespace: string;
  log: Logger;
  /** For the embedded server; default `normal`. */
  sqliteSync?: SqliteSync;
  /** For the embedded server, in addition to what it is always run with. */
  dynamicConfig?: DynamicConfig;
  env?: NodeJS.ProcessEnv;
  /** Whether the embedded server's program may be downloaded; default false. */
  mayDownload?: boolean;
}

/** A Temporal server with a namespace that can be used. */
export interface ProvisionedTemporal {
  /** For clients and workers. */
  connectionOptions: NativeConnectionOptions;
  namespace: string;
  embedded: boolean;
  /** Ends the embedded server; a foreign one is left alone. */
  stop: () => Promise<void>;
}

/** How long a server of ours keeps the histories of turns that have closed; the embedded one starts with a day. */
export const RETENTION = '3650d';

const FOREIGN_MS = 5000;

/**
 * Sees to it that there is a Temporal server with our namespace: the foreign one that is configured, else our own.
 *
 * @throws ProvisionError, DataDirInUseError
 */
export async function provisionTemporal(options: ProvisionOptions): Promise<ProvisionedTemporal> {
  const { dataDir, cacheDir, external, namespace, log, env = process.env, mayDownload = false, ...settings } = options;
  if (external) {
    const { connectionOptions } = external;
    await checkForeign(connectionOptions, namespace);
    return { connectionOptions, namespace, embedded: false, stop: () => Promise.resolve() };
  }
  const binary = await findTemporalBinary({ cacheDir, env, mayDownload, log });
  const { address, stop } = await startEmbeddedTemporal({ ...settings, dataDir, binary, namespace, log });
  try {
    await keepHistories(address, namespace);
  } catch (error) {
    await stop();
    throw error;
  }
  return { connectionOptions: { address }, namespace, embedded: true, stop };
}

async function keepHistories(address: string, namespace: string): Promise<void> {
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

async function checkForeign(options: NativeConnectionOptions, namespace: string): Promise<void> {
  const { address = '' } = options;
  const connection = Connection.lazy(options);
  const { workflowService } = connection;
  try {
    // The client tries again until then: the server may be starting, like us.
    await connection.withDeadline(Date.now() + FOREIGN_MS, () => workflowService.describeNamespace({ namespace }));
  } catch (cause) {
    throw new ProvisionError(whyNotForeign(cause, address, namespace), { cause });
  } finally {
    await connection.close();
  }
}

function whyNotForeign(error: unknown, address: string, namespace: string): string {
  if (isNotFound(error)) {
    return (
      `the Temporal server at TEMPORAL_ADDRESS ${address} has no namespace ${namespace}: set TEMPORAL_NAMESPACE ` +
      `to one that it has, or create it, on a server of your own with\n` +
      `  temporal operator namespace create --address ${address} --namespace ${namespace} --retention 90d`
    );
  }
  const details = errorMessage(error);
  if (isTemporalUnavailable(error)) {
    return (
      `no Temporal server answers at TEMPORAL_ADDRESS ${address} within ${FOREIGN_MS / 1000} s (${details}): ` +
      `see whether it is running and can be reached from here, and whether it wants TLS (TEMPORAL_TLS); ` +
      `without TEMPORAL_ADDRESS Everturn runs its own`
    );
  }
  return (
    `the Temporal server at TEMPORAL_ADDRESS ${address} refuses us (${details}): ` +
    `check TEMPORAL_NAMESPACE, TEMPORAL_API_KEY and TEMPORAL_TLS_*`
  );
}
