import { toUuid } from './session-ids.ts';

/** The bucket of the files in a session's events. */
export const FILES_BUCKET = 'files';

/** The path of this server under which a client gets a file of a session. */
export function resourcePath(file: { blob: string; name: string; mimeType: string }, sessionId: string): string {
  const query = new URLSearchParams({ name: file.name, type: file.mimeType });
  return `/api/v2/sessions/${toUuid(sessionId)}/resources/${FILES_BUCKET}/${file.blob}?${query.toString()}`;
}
