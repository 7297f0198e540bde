// SPDX-License-Identifier: Apache-2.0
// Descriptors that a forked child closes at once. If the child kept the connection open, the broker would not see the end
// of its parent.
#ifndef GPUSHARE_CLIENT_INHERITED_H_
#define GPUSHARE_CLIENT_INHERITED_H_

namespace gpushare::client {

// At most 16 at a time. Further descriptors stay open in the child; the broker then sees the parent's end by its pidfd.
void CloseInChildren(int fd);
// Must be called before `fd` is closed, since its number may then be reused.
void KeepInChildren(int fd);

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_INHERITED_H_
