package network

// Has says that the sandbox has an address of this network.
func (b *Bridge) Has(sandboxID string) bool {
	_, ok := b.ledger.get(sandboxID)
	return ok
}
