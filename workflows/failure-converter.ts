import { DefaultFailureConverter } from '@temporalio/common';

/** Puts the messages and stack traces of errors into a payload, which goes through the codec. */
export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
