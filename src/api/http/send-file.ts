import type { Response } from 'express';

/** Sends the bytes of a file as a download. */
export function sendFile(
  response: Response,
  { name, type, bytes }: { name: string; type: string; bytes: Buffer },
): void {
  response.attachment(name);
  response.set({
    'content-type': type,
    // Users and tools write these files: a browser must not run their content.
    'content-security-policy': "default-src 'none'; sandbox",
    'cache-control': 'private, max-age=31536000, immutable',
  });
  response.send(bytes);
}
