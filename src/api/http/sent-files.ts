import type { Caller } from '../../core/subject.ts';
import { BlobNotFound, BlobTooLarge } from '../../blobs/blob-store.ts';
import type { FileContent } from '../../blobs/store-files.ts';
import { fetchFile, type FetchedFile } from '../../lib/fetch-file.ts';
import { failureReason } from '../../mcp/failure-reason.ts';
import { MEDIA_TYPE } from '../../spec/bounds.ts';
import { parseDataUri } from '../../spec/data-uri.ts';
import type { ApiContext } from './context.ts';
import { ApiError } from './errors.ts';
import { authorizeSession } from '../../engine/access.ts';
import { EngineError } from '../../engine/errors.ts';

/** A file as the client sends it: its bytes as a data URI, or the URL or path to read them from. */
export interface SentFile {
  name: string;
  data: string;
  /** Its path in the request. */
  param: string;
}

/** The services that read files, and the request's caller and host. */
export interface SourceContext extends Pick<ApiContext, 'catalog' | 'blobs' | 'allowPrivateUrls'> {
  caller: Caller;
  /** This server's name in the request: a URL with this host refers to one of its own files. */
  host: string | undefined;
}

/** Limits for the files that a request refers to: all of them are in memory together, even for a small request. */
const MAX_FETCHED_FILES = 20;
const MAX_FETCHED_BYTES = 30 * 1024 * 1024;
const FETCH_MS = 30_000;

/** A URL of a file, which is fetched before the turn starts. */
export const FILE_URL = '^https?://.';

/** The path of a large file on this server, after any prefix of a proxy; the groups are session, file and query. */
export const OWN_FILE_PATH = '^(?:/[^?#]*)?/v1/agents/sessions/([0-9A-Za-z_]+)/files/([0-9a-f]{64})(?:[?]([^#]*))?$';

/** The path that `fileUrl` makes. */
const OWN_FILE = new RegExp(OWN_FILE_PATH);
const URL_OF_FILE = new RegExp(FILE_URL, 'i');
const TYPE = new RegExp(`^${MEDIA_TYPE}$`);

/** Checks the files without reading them. @throws ApiError `invalid_data_uri` or `invalid_request` */
export function checkFiles(files: SentFile[]): void {
  for (const { data, param } of files) {
    if (isDataUri(data)) sentDataUri(data, param);
    else if (!URL_OF_FILE.test(data) && !OWN_FILE.test(data)) throw invalidDataUri(param);
  }
  const [excess] = files.filter(({ data }) => !isDataUri(data)).slice(MAX_FETCHED_FILES);
  if (!excess) return;
  const { param } = excess;
  throw new ApiError('invalid_request', `at most ${MAX_FETCHED_FILES} files of a turn may be URLs or paths`, { param });
}

/**
 * Reads the bytes of all files, in order: from the request, from this server's store, or from the internet. Writes
 * nothing.
 * @throws EngineError `file_unavailable` that names the file
 */
export async function readFiles(files: SentFile[], context: SourceContext): Promise<FileContent[]> {
  const signal = AbortSignal.timeout(FETCH_MS);
  const contents: FileContent[] = [];
  let remaining = MAX_FETCHED_BYTES;
  // Sequential, because each file reduces the remaining bytes.
  for (const { name, data, param } of files) {
    if (isDataUri(data)) {
      contents.push({ name, ...sentDataUri(data, param) });
      continue;
    }
    const own = ownFileOf(data, context.host);
    const options = { context, maxBytes: remaining, signal, param };
    const { mimeType, bytes } = own ? await readOwn(own, options) : await readUrl(data, options);
    remaining -= bytes.length;
    contents.push({ name, mimeType, base64: bytes.toString('base64') });
  }
  return contents;
}

interface OwnFile {
  sessionId: string;
  blob: string;
  mimeType: string;
}

function ownFileOf(data: string, host: string | undefined): OwnFile | undefined {
  const url = URL.parse(data);
  if (url && url.host !== host?.toLowerCase()) return undefined;
  const [, sessionId, blob, query] = OWN_FILE.exec(url ? url.pathname + url.search : data) ?? [];
  if (!sessionId || !blob) return undefined;
  const type = new URLSearchParams(query).get('type') ?? '';
  return { sessionId, blob, mimeType: TYPE.test(type) ? type : 'application/octet-stream' };
}

interface ReadOptions {
  context: SourceContext;
  maxBytes: number;
  signal: AbortSignal;
  param: string;
}

async function readOwn(
  { sessionId, blob, mimeType }: OwnFile,
  { context: { catalog, blobs, caller }, maxBytes, param }: ReadOptions,
): Promise<FetchedFile> {
  try {
    await authorizeSession(catalog, sessionId, caller, 'read');
    return { mimeType, bytes: await blobs.get(sessionId, blob, maxBytes) };
  } catch (error) {
    if (error instanceof BlobTooLarge) {
      const message = `${param}: the file is larger than ${maxBytes} bytes`;
      throw new EngineError('file_unavailable', message, { param, cause: error });
    }
    const isMissing = error instanceof BlobNotFound || error instanceof EngineError;
    if (!isMissing) throw error;
    throw new EngineError('file_unavailable', `${param}: there is no such file here`, { param, cause: error });
  }
}

async function readUrl(url: string, { context, maxBytes, signal, param }: ReadOptions): Promise<FetchedFile> {
  try {
    return await fetchFile(url, { allowPrivate: context.allowPrivateUrls(), maxBytes, signal });
  } catch (error) {
    const reason = signal.aborted ? `did not arrive within ${FETCH_MS / 1000} s` : failureReason(error);
    throw new EngineError('file_unavailable', `${param}: the file ${reason}`, { param, cause: error });
  }
}

function isDataUri(data: string): boolean {
  return /^data:/i.test(data);
}

/** @throws ApiError `invalid_data_uri` */
function sentDataUri(uri: string, param: string): { mimeType: string; base64: string } {
  const parsed = parseDataUri(uri);
  if (!parsed) throw invalidDataUri(param);
  return parsed;
}

function invalidDataUri(param: string): ApiError {
  const forms = 'data:<mime type>;base64,<payload>, an http or https URL, or the path of a file of this server';
  return new ApiError('invalid_data_uri', `${param} must be ${forms}`, { param });
}
