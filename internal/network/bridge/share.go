package bridge

import "context"

// ShareForwarding says that others forward packets on this host with this node's knowledge (pods that CNI connects). It takes
// the forward guard away that an earlier process may have left, and that of the cluster's DNS, and keeps them away. It is idempotent.
func (b *Bridge) ShareForwarding(ctx context.Context) error {
	if !b.rules.Share() {
		return nil
	}
	note, err := b.host.notes.get()
	if err != nil || !note.IPForward && !note.IP6Forward && !b.dns {
		return err
	}
	if note.IPForward || note.IP6Forward {
		b.log.InfoContext(ctx, "pods are connected by CNI, so packets between the host's other networks are forwarded from now on", "bridge", b.name)
	}
	return b.rules.Renew()
}
