import { DefaultFailureConverter } from '@temporalio/common';

/** Encodes the messages and stack traces of errors as payloads, so that the codec encrypts them. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
