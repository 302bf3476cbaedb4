import { Client, Connection, type ConnectionOptions } from '@temporalio/client';
import { openBlobStore } from '../blobs/open-blob-store.ts';
import { Catalog } from '../features/catalog.ts';
import { ConfigError, loadConfig, type Config } from '../config.ts';
import { Cipher } from '../encryption/cipher.ts';
import { createLogger } from '../telemetry/logger.ts';
import { TurnLogReader, TurnNotFound } from '../engine/turn-log-reader.ts';
import { dataConverterFor, workerConverterFor } from '../temporal/data-converter.ts';
import { databaseFileIn } from '../temporal-server/embedded-server.ts';
import { findDevServer } from '../temporal-server/server-record.ts';
import { GRPC_CHANNEL_ARGS, TurnHistory } from '../temporal/history.ts';
import { reportTurn, type TurnReport } from './turn-report.ts';
import { reportText } from './turn-report-text.ts';
import { OnceLog } from '../lib/once-log.ts';

/** Prints what the stores contain of a turn. @throws ConfigError if neither the catalog nor Temporal has it */
export async function inspectTurn(turnId: string, { json }: { json?: boolean }): Promise<void> {
  const report = await readReport(turnId, loadConfig());
  process.stdout.write(json ? `${JSON.stringify(report, undefined, 2)}\n` : reportText(report));
}

/** @throws ConfigError if neither the catalog nor Temporal has the turn */
async function readReport(turnId: string, config: Config): Promise<TurnReport> {
  const log = createLogger(config);
  const cipher = new Cipher(config.encryptionKeys);
  const catalog = await Catalog.openExisting(config.database, log, cipher);
  const blobs = await openBlobStore(config, cipher);
  const address = await temporalAddress(config);
  const connection = Connection.lazy({ ...address, channelArgs: GRPC_CHANNEL_ARGS, interceptors: [] });
  try {
    const dataConverter = dataConverterFor(cipher);
    const client = new Client({
      connection,
      namespace: config.temporal.namespace,
      ...(dataConverter && { dataConverter }),
    });
    const { namespace, loadedDataConverter: converter } = client.options;
    const { payloadCodecs: commandCodecs = [] } = workerConverterFor(cipher, config) ?? {};
    const history = new TurnHistory({ connection, namespace, converter, commandCodecs });
    const logs = new TurnLogReader({ catalog, history, blobs, losses: new OnceLog(log) });
    return await reportTurn(turnId, { catalog, logs, client: address && client });
  } catch (error) {
    if (!(error instanceof TurnNotFound)) throw error;
    const where = address
      ? 'Neither the catalog nor Temporal has'
      : 'The catalog does not have, and no Temporal is running that could have,';
    throw new ConfigError(`${where} the turn ${turnId}`, { cause: error });
  } finally {
    await connection.close();
    blobs.close();
    await catalog.close();
  }
}

/** The address of the server's Temporal: the external one, or the embedded one if it is running. */
async function temporalAddress({ temporal, dataDir }: Config): Promise<ConnectionOptions | undefined> {
  if (temporal.external) return temporal.external.connectionOptions;
  const databaseFile = await databaseFileIn(dataDir).catch(() => undefined);
  const server = databaseFile === undefined ? undefined : await findDevServer(databaseFile);
  return server && { address: `127.0.0.1:${server.port}` };
}
