/** The form in which commands are compared: single blanks outside of quotes, and none at the ends. */
export function collapseBlanks(command: string): string {
  let collapsed = '';
  let quote: string | undefined;
  let isAfterBlank = false;
  for (let i = 0; i < command.length; i++) {
    const character = command.charAt(i);
    if (quote === undefined && (character === ' ' || character === '\t')) {
      isAfterBlank = collapsed !== '';
      continue;
    }
    if (isAfterBlank) collapsed += ' ';
    isAfterBlank = false;
    collapsed += character;
    if (character === '\\' && quote !== "'") {
      i += 1;
      collapsed += command.charAt(i);
    } else if (character === quote) {
      quote = undefined;
    } else if (quote === undefined && (character === '"' || character === "'")) {
      quote = character;
    }
  }
  return collapsed;
}
