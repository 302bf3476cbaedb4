import { Client, Connection } from '@temporalio/client';
import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import { countedBlobs } from '../blobs/counted-blobs.ts';
import { openBlobStore } from '../blobs/open-blob-store.ts';
import type { Config } from '../config.ts';
import { Cipher } from '../encryption/cipher.ts';
import { TurnLogReader } from '../engine/turn-log-reader.ts';
import { Catalog } from '../features/catalog.ts';
import { errorMessage, StartupError } from '../lib/errors.ts';
import { OnceLog } from '../lib/once-log.ts';
import { requestHeader } from '../telemetry/request-id-interceptor.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import { dataConverterFor, workerConverterFor } from '../temporal/data-converter.ts';
import { GRPC_CHANNEL_ARGS, TurnHistory } from '../temporal/history.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';

interface StoresOptions {
  config: Config;
  log: Logger;
  temporal: ProvisionedTemporal;
  tracing?: Tracing | undefined;
}

/** The stores that a process of any role reads and writes. */
export type Stores = Awaited<ReturnType<typeof openStores>>;

/** Opens the stores. If one fails, those already open are closed. */
export async function openStores({ config, log, temporal, tracing }: StoresOptions) {
  await using cleanup = new AsyncDisposableStack();
  const { connectionOptions, namespace } = temporal;
  const cipher = new Cipher(config.encryptionKeys);
  const catalog = await Catalog.open(config.database, log, cipher);
  cleanup.defer(() => catalog.close());
  await registerKeys(catalog, cipher, log);
  const stored = await openBlobs(config, cipher);
  const blobs = countedBlobs(stored, { count: (...blob) => catalog.storedBytes.addBlob(...blob), log });
  cleanup.defer(() => blobs.close());
  // No interceptors, which means no retries by the client: they make an overloaded server look silent, and a retry that
  // is pending when the connection closes ends the process.
  const connection = await Connection.connect({
    ...connectionOptions,
    channelArgs: GRPC_CHANNEL_ARGS,
    interceptors: [],
  });
  cleanup.defer(() => connection.close());
  const dataConverter = dataConverterFor(cipher);
  const client = new Client({
    connection,
    namespace,
    ...(dataConverter && { dataConverter }),
    interceptors: { workflow: [requestHeader, ...(tracing ? [tracing.commands] : [])] },
  });
  const converter = client.options.loadedDataConverter;
  const { payloadCodecs: commandCodecs = [] } = workerConverterFor(cipher, config) ?? {};
  const history = new TurnHistory({ connection, namespace, converter, commandCodecs });
  const losses = new OnceLog(log);
  const logs = new TurnLogReader({ catalog, history, blobs, losses });
  const opened = cleanup.move();
  return { cipher, catalog, blobs, client, history, losses, logs, close: () => opened.disposeAsync() };
}

/** @throws StartupError if the store cannot be written */
async function openBlobs(config: Config, cipher: Cipher): Promise<BlobStore> {
  const blobs = await openBlobStore(config, cipher);
  try {
    await blobs.check();
    return blobs;
  } catch (error) {
    blobs.close();
    const settings = config.blobs
      ? 'EVERTURN_BLOBS, AWS_ENDPOINT_URL_S3, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, ...)'
      : 'EVERTURN_DATA';
    throw new StartupError(`the blobs cannot be written; check ${settings}: ${errorMessage(error)}`, { cause: error });
  }
}

/** @throws CatalogError */
async function registerKeys(catalog: Catalog, cipher: Cipher, log: Logger): Promise<void> {
  const missing = await catalog.encryptionKeys.register(cipher, new Date().toISOString());
  if (missing.length === 0) return;
  log.warn({ keys: missing }, 'data encrypted under these keys cannot be read: EVERTURN_ENCRYPTION_KEYS lacks them');
}
