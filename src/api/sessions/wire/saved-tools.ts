import { z } from 'zod';
import {
  savedToolFields,
  savedToolKind,
  type SavedTool,
  type SavedToolAbout,
} from '../../../features/code/saved-tools/saved-tool.ts';
import { fieldsToWire } from '../../http/wire-fields.ts';
import { timestamp } from './event.ts';
import { subject, subjectToWire } from './subject.ts';

const about = {
  category: z.string(),
  name: z.string(),
  kind: savedToolKind,
  description: z.string(),
  version: z.int().describe('1 for the first, and one more each time that it is saved'),
  created_by: subject.describe('who has saved this version'),
  updated_at: timestamp,
};

/** A saved tool in a list (`docs/code-actions.md`, "Saved tools"). */
export const savedToolAbout = z.object(about).meta({ id: 'SavedToolAbout' });

/** A saved tool with its code. */
export const savedTool = z.object({ ...about, api: z.string(), impl: z.string().optional() }).meta({ id: 'SavedTool' });

const ignored = z.unknown().optional().describe('as GET gives it; ignored');

/** A tool to save: the result of GET can be put back. */
export const savedToolBody = z.strictObject({
  ...savedToolFields,
  category: z.string().optional().describe('that of the path'),
  name: z.string().optional().describe('that of the path'),
  version: ignored,
  created_by: ignored,
  updated_at: ignored,
});

export type SavedToolResource = z.output<typeof savedTool>;

export function savedToolAboutToResource(tool: SavedToolAbout): z.output<typeof savedToolAbout> {
  return fieldsToWire(savedToolAbout, { ...tool, createdBy: subjectToWire(tool.createdBy) }, 'signature', 'hash');
}

export function savedToolToResource(tool: SavedToolAbout & Pick<SavedTool, 'api' | 'impl'>): SavedToolResource {
  const { api, impl } = tool;
  return { ...savedToolAboutToResource(tool), api, ...(typeof impl === 'string' && { impl }) };
}
