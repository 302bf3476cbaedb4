import { deflateSync } from 'node:zlib';

/** A PDF file with one line of text per page, and `more` objects. */
export function pdfOf(pages: string[]): Buffer {
  return pdfWith(
    pages.map((text) => Buffer.from(`BT /F1 12 Tf 72 720 Td (${text.replaceAll(/[()\\]/g, '\\$&')}) Tj ET`)),
  );
}

/** A PDF file whose pages have these content streams, compressed. */
export function pdfWith(streams: Buffer[]): Buffer {
  const kids = streams.map((_, i) => `${4 + 2 * i} 0 R`).join(' ');
  const objects: Buffer[] = [
    Buffer.from('<< /Type /Catalog /Pages 2 0 R >>'),
    Buffer.from(`<< /Type /Pages /Kids [${kids}] /Count ${streams.length} >>`),
    Buffer.from('<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>'),
  ];
  for (const [i, stream] of streams.entries()) {
    const packed = deflateSync(stream);
    const resources = '/Resources << /Font << /F1 3 0 R >> >>';
    objects.push(
      Buffer.from(`<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] ${resources} /Contents ${5 + 2 * i} 0 R >>`),
      Buffer.concat([
        Buffer.from(`<< /Length ${packed.length} /Filter /FlateDecode >>\nstream\n`),
        packed,
        Buffer.from('\nendstream'),
      ]),
    );
  }
  const parts = [Buffer.from('%PDF-1.4\n')];
  const offsets: number[] = [];
  let length = parts[0]?.length ?? 0;
  for (const [i, object] of objects.entries()) {
    const part = Buffer.concat([Buffer.from(`${i + 1} 0 obj\n`), object, Buffer.from('\nendobj\n')]);
    offsets.push(length);
    length += part.length;
    parts.push(part);
  }
  const rows = offsets.map((offset) => `${String(offset).padStart(10, '0')} 00000 n \n`).join('');
  const size = objects.length + 1;
  parts.push(
    Buffer.from(
      `xref\n0 ${size}\n0000000000 65535 f \n${rows}trailer\n<< /Size ${size} /Root 1 0 R >>\nstartxref\n${length}\n%%EOF\n`,
    ),
  );
  return Buffer.concat(parts);
}
