// An MCP server with tools of three kinds: one reads, one writes and so needs an approval, one asks the user.
// mcp-servers.json registers it as a program, which Everturn starts once per subject: each subject has its own notes.
import { setTimeout as sleep } from 'node:timers/promises';
import { acceptedContent, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

let notes = ['Water the plants.', 'The script of a film is on the desk.'];
const text = (content: string) => ({ content: [{ type: 'text' as const, text: content }] });
const server = new McpServer({ name: 'notes', version: '1.0.0' });

server.registerTool(
  'search_notes',
  {
    description: 'Finds the notes that contain a word. Without a word: all notes.',
    inputSchema: z.object({ word: z.string().optional() }),
    annotations: { readOnlyHint: true },
  },
  ({ word = '' }) => text(notes.filter((note) => note.toLowerCase().includes(word.toLowerCase())).join('\n')),
);
server.registerTool(
  'add_note',
  {
    description: 'Writes a note.',
    inputSchema: z.object({ note: z.string().min(1) }),
    annotations: { readOnlyHint: false, destructiveHint: false },
  },
  ({ note }) => text(`Noted. There are ${notes.push(note)} notes now.`),
);
server.registerTool(
  'forget_notes',
  {
    description: 'Deletes the notes that contain a word, for which it asks the user.',
    inputSchema: z.object({}),
    annotations: { destructiveHint: true },
  },
  (_args, { mcpReq }) => {
    if (!mcpReq.inputResponses) return inputRequired({ inputRequests: { word: inputRequired.elicit(QUESTION) } });
    const { word } = acceptedContent<{ word?: string }>(mcpReq.inputResponses, 'word') ?? {};
    const kept = notes.filter((note) => !word || !note.toLowerCase().includes(word.toLowerCase()));
    const deleted = notes.length - kept.length;
    notes = kept;
    return text(`Deleted ${deleted} notes.`);
  },
);
server.registerTool(
  'count_slowly',
  {
    description: 'Counts up to a number, one second each.',
    inputSchema: z.object({ to: z.int().min(1).max(60) }),
    annotations: { readOnlyHint: true },
  },
  async ({ to }, { mcpReq }) => {
    await sleep(to * 1_000, undefined, { signal: mcpReq.signal });
    return text(`Counted to ${to}.`);
  },
);
const QUESTION = {
  message: 'Which notes should be deleted?',
  requestedSchema: {
    type: 'object' as const,
    properties: { word: { type: 'string' as const, title: 'A word in them', minLength: 1 } },
    required: ['word'],
  },
};

// The 2026 protocol asks in results, as forget_notes does; clients of older protocols are answered, too.
serveStdio(() => server);
