import { DefaultFailureConverter } from '@temporalio/common';

/** Encodes the messages and stack traces of errors as payloads, so that the codec encrypts them. */
class EncodingFailureConverter extends DefaultFailureConverter {
  /**
   * Ignores the details of a cancellation, which no code here reads. Temporal's server adds unencrypted ones if no
   * worker has started the activity: workers refuse them, so reading them would fail the workflow task for ever.
   */
  override failureToError(...[failure, ...rest]: Parameters<DefaultFailureConverter['failureToError']>): Error {
    const { canceledFailureInfo } = failure;
    return super.failureToError(canceledFailureInfo ? { ...failure, canceledFailureInfo: {} } : failure, ...rest);
  }
}

export const failureConverter = new EncodingFailureConverter({ encodeCommonAttributes: true });
