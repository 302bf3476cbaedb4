import { z } from 'zod';

const foreign = z.unknown().optional().describe('sent by the public SDKs; without effect');

/**
 * The fields that the public SDKs send and that this server has no use for. They are stored and returned like others, and
 * have no effect: they belong to features that are rejected by name where an agent enables them.
 */
export const FOREIGN = {
  sandbox: { file_downloads: foreign, network_policy: foreign },
  skill: { url: foreign, path: foreign, ref: foreign, preload: foreign },
};
