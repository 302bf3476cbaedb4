import path from 'node:path';
import { withoutOutput, type Execution, type FeatureEvent, type SavedFile } from '../../../core/records/sandbox.ts';
import type { ToolOutcome } from '../../../core/records/results.ts';
import type { WithoutId } from '../../../core/records/base.ts';
import type { CellEnd } from '../kernel/running-cell.ts';
import type { CellStep, KernelRestart, RanCell } from './thread-kernel.ts';

/** The maximum number of variable names in a text for a model. */
const MAX_NAMED = 20;

/** A display of a cell, as a file of the workspace. */
interface DisplayFile {
  path: string;
  mediaType: string;
  data: Buffer;
}

interface CellResult {
  outcome: ToolOutcome;
  text: string;
  execution: Execution;
}

const FOLDERS: Record<CellEnd['displays'][number]['mediaType'], { folder: string; extension: string }> = {
  'image/png': { folder: 'images', extension: 'png' },
  'image/jpeg': { folder: 'images', extension: 'jpg' },
  'image/svg+xml': { folder: 'images', extension: 'svg' },
  'text/html': { folder: 'outputs', extension: 'html' },
  'application/json': { folder: 'outputs', extension: 'json' },
};

/** The workspace files for the displays of a cell. @param callId may have any characters */
export function displayFiles({ displays }: Pick<CellEnd, 'displays'>, callId: string): DisplayFile[] {
  return displays.map(({ mediaType, data }, i) => {
    const { folder, extension } = FOLDERS[mediaType];
    return { path: `${folder}/${fileStem(callId)}-${i + 1}.${extension}`, mediaType, data };
  });
}

/** A call's id as a part of a file name. Providers choose the ids, so unsafe characters are replaced. */
export function fileStem(callId: string): string {
  return callId.replaceAll(/[^\w-]/g, '_').slice(0, 100) || 'call';
}

/** The result of an ended cell: its output, its traceback, the files of its displays, and notices. */
export function cellResult(
  ran: RanCell,
  {
    files,
    notices = [],
    isCancelled,
  }: { files: readonly Pick<SavedFile, 'path'>[]; notices?: string[]; isCancelled: boolean },
): CellResult {
  const { generation, end } = ran;
  if (end.exit === 'not_started') {
    const execution = withoutOutput('not_started');
    const outcome = isCancelled ? 'cancelled' : 'failed';
    return { outcome, text: notice(`the code was not executed: ${end.reason}`), execution };
  }
  if (end.exit === 'stale') return staleResult(generation, end);
  const { cell } = end;
  const isFinal = ({ channel }: CellEnd['parts'][number]): boolean => channel === 'error';
  const join = (parts: CellEnd['parts']): string => parts.map(({ text }) => text).join('');
  const sections = [
    join(cell.parts.filter((part) => !isFinal(part))).trimEnd(),
    join(cell.parts.filter(isFinal)).trimEnd(),
    ...files.map(linkTo),
    ...[...restartNotice(end.restart), ...cell.notices, ...notices, ...kernelNotice(end)].map(notice),
  ];
  // Code that ended by itself counts as not cancelled.
  const isInterrupted = isCancelled && end.exit === 'interrupted';
  const outcome = isInterrupted ? 'cancelled' : end.exit === 'ok' ? 'succeeded' : 'failed';
  const execution: Execution = {
    generation,
    exit: end.exit,
    startedAt: cell.startedAt.toISOString(),
    durationMs: cell.durationMs,
    outputBytes: cell.outputBytes,
    ...(cell.toolCalls > 0 && { toolCalls: cell.toolCalls }),
    ...(cell.commands > 0 && { commands: cell.commands }),
    defined: cell.defined,
    ...(cell.error && { error: cell.error }),
  };
  return { outcome, text: sections.filter((section) => section !== '').join('\n'), execution };
}

/** The events of the kernel that was started for a cell. */
export function kernelEvents(
  { begun }: CellStep,
  { sandboxId, threadId, python, at }: { sandboxId: string; threadId: string; python: string; at: string },
): WithoutId<FeatureEvent>[] {
  if (!begun) return [];
  const event = { kind: 'feature.event', at, threadId, isHidden: true } as const;
  if (!('reason' in begun)) {
    const data = { sandbox_id: sandboxId, generation: begun.generation, python };
    return [{ ...event, type: 'kernel.started', data }];
  }
  const { generation, previousGeneration: previous, reason, restored, lost, lostCount } = begun;
  const variables = { restored: restored?.names ?? [], lost, lost_count: lostCount };
  const restart = { previous_generation: previous, reason, ...variables };
  return [{ ...event, type: 'kernel.restarted', data: { sandbox_id: sandboxId, generation, ...restart } }];
}

/** The beginning and the end of a text that is too long for the model. @param file contains the whole text */
export function previewOf(
  text: string,
  { characters, file }: { characters: number; file: string | undefined },
): string {
  const whole = file === undefined ? '' : `; the whole is in ${file}`;
  const cut = notice(`cut: ${Buffer.byteLength(text)} bytes in all${whole}`);
  const head = text.slice(0, characters);
  return [head, cut, characters === 0 ? '' : text.slice(-characters)]
    .filter((part) => part !== '')
    .join('\n')
    .toWellFormed();
}

function staleResult(
  generation: number,
  { reason, restored, lost, lostCount }: Extract<RanCell['end'], { exit: 'stale' }>,
): CellResult {
  const lostNames =
    lostCount === 0 ? 'its variables are lost' : `these variables are lost: ${namesOf(lost, lostCount)}`;
  const variables = restored ? variablesText({ restored, lost, lostCount }) : lostNames;
  const text = notice(
    `none of this code was executed: the kernel was restarted (${reason}) since it was last used, and ${variables}. ` +
      'Define again what the code needs, and run it again',
  );
  return { outcome: 'failed', text, execution: { ...withoutOutput('stale'), generation } };
}

/** The notice about a new kernel with restored variables. */
function restartNotice(restart: KernelRestart | undefined): string[] {
  if (!restart?.restored) return [];
  const { reason, restored, lost, lostCount } = restart;
  return [`the kernel was restarted (${reason}), and ${variablesText({ restored, lost, lostCount })}`];
}

function variablesText({
  restored: { names, count },
  lost,
  lostCount,
}: Pick<KernelRestart, 'lost' | 'lostCount'> & { restored: NonNullable<KernelRestart['restored']> }): string {
  const as = 'as they were after the last cell that has succeeded';
  const kept = count === 0 ? 'no variable was restored' : `variables were restored ${as}: ${namesOf(names, count)}`;
  return lostCount === 0 ? kept : `${kept}; lost: ${namesOf(lost, lostCount)}`;
}

/** The notice about the variables that were lost because the kernel ended with the cell. */
function kernelNotice({ cell, stored }: Extract<RanCell['end'], { cell: CellEnd }>): string[] {
  const { kernelEnd, names, nameCount } = cell;
  if (!kernelEnd) return [];
  const ended = `the kernel has ended (${kernelEnd.reason})`;
  if (stored) {
    const { others, otherCount } = stored;
    const lost = otherCount === 0 ? '' : `; lost: ${namesOf(others, otherCount)}`;
    return [
      `${ended}; the next one begins with the variables as they were after the last cell that has succeeded${lost}`,
    ];
  }
  const lost = nameCount === 0 ? 'it had no variables' : `lost: ${namesOf(names, nameCount)}`;
  return [`${ended}; ${lost}`];
}

/** The first names, and the number of the others. */
export function namesOf(names: string[], count: number): string {
  const more = count > MAX_NAMED ? ` and ${count - MAX_NAMED} more` : '';
  return names.slice(0, MAX_NAMED).join(', ') + more;
}

function linkTo({ path: file }: Pick<SavedFile, 'path'>): string {
  const link = `[${path.basename(file)}](${file})`;
  return file.startsWith('images/') ? `!${link}` : link;
}

/** A line that Everturn adds to a result. */
export function notice(text: string): string {
  return `[everturn] ${text}`;
}
