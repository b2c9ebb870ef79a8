package bridge

// Has says that the sandbox has an address of this network.
func (b *Bridge) Has(sandboxID string) bool {
	_, ok := b.ledger.Get(sandboxID)
	return ok
}
