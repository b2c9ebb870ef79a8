// Package fsck is what the checks of all stores of a stopped node have in common: one form of what is wrong (Finding) and of what a repair does about it (Fix),
// and the proof that a database file is whole (ViewDatabase). The check of each store is beside it (image/fsck, runtime/fsck); what one of them finds, the
// other may have to repair.
package fsck
