import { STATUS_CODES, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { newId } from '../../engine/new-id.ts';
import { ApiError, standardErrors, type CommonCode } from './errors.ts';

/**
 * Sends the errors that Node's HTTP server reports before Express gets the request, in the form of all other errors.
 */
export function respondToProtocolErrors(server: Server): void {
  const responses = new WeakMap<Duplex, ServerResponse>();
  server.on('request', ({ socket }, response) => responses.set(socket, response));
  server.on('checkExpectation', (_request, response) => {
    respond(response, 'expectation_failed', 'the header Expect may only be 100-continue: leave it out');
  });
  const respondTo = (error: NodeJS.ErrnoException, socket: Duplex): void => {
    const response = responses.get(socket);
    // Bytes after an unfinished response would be read as a part of it.
    const isResponding = response?.headersSent === true && !response.writableFinished;
    if (!socket.writable || isResponding) {
      socket.destroy();
      return;
    }
    const { status, headers, text } = serialized(protocolError(error));
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${text}`, () => socket.destroy());
  };
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (error.code !== REQUEST_TIMEOUT) {
      respondTo(error, socket);
      return;
    }
    // After the event loop was blocked, Node looks for late requests before it reads those that have arrived meanwhile.
    const before = responses.get(socket);
    setImmediate(() => {
      const response = responses.get(socket);
      const hasArrived = response !== before && response?.req.complete;
      if (!hasArrived) respondTo(error, socket);
    });
  });
}

/** Responds to a request that arrives before the server is ready for it. */
export const respondStarting: RequestListener = (_request, response) => {
  respond(response, 'unavailable', 'the server is starting: retry');
};

function respond(response: ServerResponse, code: CommonCode, message: string): void {
  const { status, headers, text } = serialized(new ApiError(code, message));
  response.writeHead(status, headers).end(text);
}

const REQUEST_TIMEOUT = 'ERR_HTTP_REQUEST_TIMEOUT';

function protocolError(error: NodeJS.ErrnoException): ApiError {
  switch (error.code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError('headers_too_large', 'the URL and the headers exceed 16 KiB', { cause: error });
    case REQUEST_TIMEOUT:
      return new ApiError('request_timeout', 'the request was incomplete at its time-out: retry', { cause: error });
    default:
      return new ApiError('invalid_http', `the request is not valid HTTP: ${error.message}`, { cause: error });
  }
}

function serialized(error: ApiError): { status: number; headers: Record<string, string>; text: string } {
  const { status, headers, body } = standardErrors.toResponse(error);
  const text = JSON.stringify(body);
  return {
    status,
    headers: {
      ...headers,
      'content-type': 'application/json; charset=utf-8',
      'content-length': String(Buffer.byteLength(text)),
      'x-request-id': newId('req'),
      connection: 'close',
    },
    text,
  };
}
