import type { RequestListener } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { acceptedContent, createMcpHandler, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { listen, type LocalServer } from './local-server.ts';

/**
 * Starts an MCP server for trying approvals and slow tools. It keeps one list of notes in memory for all callers, so it
 * serves requests only while there are no keys that distinguish them.
 */
export async function startDemoMcpServer({ isKeyless }: { isKeyless: () => boolean }): Promise<LocalServer> {
  const notes = ['Everturn keeps a turn alive through crashes.', 'The demo model is a script.'];
  const handler = createMcpHandler(() => serve(notes));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- made for Node's requests, with less exact types
  const server = await listen(toNodeHandler(handler) as RequestListener, '/mcp', isKeyless);
  return {
    ...server,
    stop: async () => {
      await handler.close();
      await server.stop();
    },
  };
}

function serve(notes: string[]): McpServer {
  const server = new McpServer({ name: 'demo', version: '1.0.0' });
  server.registerTool(
    'search_notes',
    {
      description: 'Finds notes that contain a word. Without a word: all notes.',
      inputSchema: z.object({ word: z.string().optional() }),
      annotations: { readOnlyHint: true },
    },
    ({ word = '' }) => {
      const found = notes.filter((note) => note.toLowerCase().includes(word.toLowerCase()));
      return text(found.length > 0 ? found.map((note) => `- ${note}`).join('\n') : 'No note contains that.');
    },
  );
  server.registerTool(
    'add_note',
    {
      description: 'Writes a note. Asks for approval first.',
      inputSchema: z.object({ note: z.string().min(1) }),
      annotations: { readOnlyHint: false, destructiveHint: false },
    },
    ({ note }) => {
      notes.push(note);
      return text(`Noted. There are ${notes.length} notes now.`);
    },
  );
  server.registerTool(
    'forget_notes',
    {
      description: 'Deletes the notes that contain a word, for which it asks the user.',
      inputSchema: z.object({}),
      annotations: { destructiveHint: true },
    },
    (_args, { mcpReq }) => {
      if (!mcpReq.inputResponses) return inputRequired({ inputRequests: { word: inputRequired.elicit(WHICH_NOTES) } });
      const { word } = acceptedContent<{ word?: string }>(mcpReq.inputResponses, 'word') ?? {};
      if (!word) return text('Nothing was deleted.');
      const kept = notes.filter((note) => !note.toLowerCase().includes(word.toLowerCase()));
      const deleted = notes.length - kept.length;
      notes.splice(0, Infinity, ...kept);
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
      await sleep(to * 1000, undefined, { signal: mcpReq.signal });
      return text(`Counted to ${to}.`);
    },
  );
  return server;
}

const WHICH_NOTES = {
  message: 'Which notes should be deleted?',
  requestedSchema: {
    type: 'object' as const,
    properties: { word: { type: 'string' as const, title: 'A word in them', minLength: 1 } },
    required: ['word'],
  },
};

function text(content: string): { content: { type: 'text'; text: string }[] } {
  return { content: [{ type: 'text', text: content }] };
}
