// SPDX-License-Identifier: Apache-2.0
// Calls its program while it is being loaded.
void first_call_in_constructor(void);

__attribute__((constructor)) static void Constructed(void) { first_call_in_constructor(); }
