/** Drafts nothing: the cloud decodes every token itself, as it would for any client. */
export class NoDrafter {
  name = "none";
  fingerprint = "";

  begin() {
    return { propose: () => null, rollback() {}, feed() {}, close() {} };
  }

  close() {}
}
