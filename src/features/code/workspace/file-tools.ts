import { z } from 'zod';
import { sizeText } from '../../../core/files.ts';
import type { OfferedTool } from '../../../models/provider.ts';
import type { ServerRun } from '../../../tools/toolset.ts';
import { editText } from './edit-text.ts';
import { mediaTypeOf } from './media-type.ts';
import { readLines } from './read-lines.ts';
import { textOfFile } from './text-content.ts';
import { chunksOf, readAll, type WorkspaceFiles } from './workspace-files.ts';
import { WORKSPACE } from '../../../spec/workspace-path.ts';
import { shown, WorkspaceFileError } from './workspace-path.ts';

/** The maximum characters of a written file, as for the code of a cell. */
const MAX_CONTENT_LENGTH = 1_000_000;

/** The limit of edits, which keep the whole file in memory, and block the process while they search. */
const MAX_EDITED_BYTES = 4 * 1024 * 1024;

/** As for the displays of a cell. */
const MAX_MEDIA_BYTES = 8 * 1024 * 1024;

/** More lines than a readable file can have. */
const MAX_LINES = 1_000_000_000;

/** Files that can be read. */
export type ReadableFiles = Pick<WorkspaceFiles, 'read'>;

/** A tool that reads or writes a file of `Files`. */
export interface FileTool<Files = WorkspaceFiles> extends OfferedTool {
  effect: ServerRun['effect'];
  /** The action on which policies decide. */
  action: 'file_read' | 'file_write' | 'file_edit';
  /**
   * @param hidden values; a text that is only a part of its file does not end with the beginning of one of them
   * @throws ZodError if the arguments do not fit the schema of the tool
   */
  run: (args: unknown, files: Files, hidden?: readonly string[]) => Promise<FileToolResult>;
}

export interface FileToolResult {
  text: string;
  isError: boolean;
  media?: { mediaType: string; data: Buffer };
}

type Definition<Input extends z.ZodObject, Files> = Omit<FileTool<Files>, 'parameters' | 'run'> & {
  input: Input;
  run: (input: z.infer<Input>, files: Files, hidden?: readonly string[]) => Promise<Omit<FileToolResult, 'isError'>>;
};

function fileTool<Input extends z.ZodObject, Files>({
  input,
  run,
  ...tool
}: Definition<Input, Files>): FileTool<Files> {
  const { $schema: _, ...parameters } = z.toJSONSchema(input, { io: 'input' });
  return {
    ...tool,
    parameters: { ...parameters, additionalProperties: false },
    run: async (args, files, hidden) => {
      const parsed = input.parse(args);
      try {
        return { ...(await run(parsed, files, hidden)), isError: false };
      } catch (error) {
        if (error instanceof WorkspaceFileError) return { text: error.message, isError: true };
        throw error;
      }
    },
  };
}

const path = z.string().describe(`The path of the file, below ${WORKSPACE}.`);

/** Also reads the modules that code imports, below `/tools`. */
export const READ_FILE = fileTool({
  name: 'read_file',
  description: 'Read a text file, or some of its lines.',
  effect: 'retry',
  action: 'file_read',
  input: z.object({
    path: z.string().describe(`The path of the file, below ${WORKSPACE}, or of the source of a tool of your code.`),
    offset: z.int().min(1).max(MAX_LINES).default(1).describe('The first line, from 1.'),
    limit: z.int().min(1).max(MAX_LINES).optional().describe('How many lines. Default: all.'),
  }),
  run: async ({ path, ...range }, files: ReadableFiles, hidden) => ({
    text: await readLines(files, path, { ...range, hidden }),
  }),
});

/** The tools by which models access the files of a sandbox without code. */
export const FILE_TOOLS: readonly FileTool[] = [
  READ_FILE,
  fileTool({
    name: 'read_media',
    description: 'Look at an image, a PDF or a sound. Of other files, you get the media type and the size.',
    effect: 'retry',
    action: 'file_read',
    input: z.object({ path }),
    run: ({ path }, files: ReadableFiles) => readMedia(files, path),
  }),
  fileTool({
    name: 'write_file',
    description: 'Write a text file, with the folders that it needs. A file that exists is replaced.',
    effect: 'retry',
    action: 'file_write',
    input: z.object({ path, content: z.string().max(MAX_CONTENT_LENGTH) }),
    run: async ({ path, content }, files: WorkspaceFiles) => {
      await files.write(path, content);
      return { text: `Wrote ${Buffer.byteLength(content)} bytes to ${path}` };
    },
  }),
  fileTool({
    name: 'edit_file',
    description: 'Replace a part of a text file. old_text must occur in it exactly once.',
    effect: 'once',
    action: 'file_edit',
    input: z.object({
      path,
      old_text: z.string().min(1).max(MAX_CONTENT_LENGTH).describe('The part to replace, with enough around it.'),
      new_text: z.string().max(MAX_CONTENT_LENGTH),
    }),
    run: async ({ path, ...edit }, files: WorkspaceFiles) => {
      let isExact = true;
      await files.update(path, MAX_EDITED_BYTES, (content) => {
        const edited = editText(textOfFile(path, content), edit);
        ({ isExact } = edited);
        return edited.text;
      });
      const note = isExact ? '' : ' (old_text without its trailing blanks and typographic characters)';
      return { text: `Edited ${path}${note}` };
    },
  }),
];

async function readMedia(files: ReadableFiles, path: string): Promise<Omit<FileToolResult, 'isError'>> {
  return files.read(path, async (file) => {
    const [head = Buffer.alloc(0)] = await Array.fromAsync(chunksOf(file, 4_096));
    const { mediaType, isMedia } = mediaTypeOf(head);
    const described = `${shown(path)} (${mediaType}, ${sizeText(file.stats.size)})`;
    if (!isMedia) return { text: described };
    if (file.stats.size > MAX_MEDIA_BYTES) {
      return { text: `${described}: models get at most ${sizeText(MAX_MEDIA_BYTES)}; make it smaller by code` };
    }
    return { text: described, media: { mediaType, data: await readAll(file, path, MAX_MEDIA_BYTES) } };
  });
}
