// Package records is the one home of what the runtime stores of its sandboxes and containers: Store keeps the records of one kind, in a table,
// as a copy in the folder of each, and in memory.
//
// Format: a record is a JSON document with its format's version in the member "version"; one without is of version 1. A protobuf message in it
// is the base64 of its protobuf encoding (Proto), which keeps every field, those too that a newer client knows and this code does not.
// Beside the table is another one of what clients have given up (package abandon).
//
// What it guarantees:
//   - intent is known to the next process before the first side effect (Add), and every change is on disk before it is seen (Modify);
//   - changes of one record come one after another, each a function of what the one before has left: no fact overwrites another;
//   - what cannot be read is left as it is, and so is what it describes (Unread); what a newer program has written is never written again.
//
// It does not know what the records mean.
package records

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"
)

// Proto is a message of type M, which is a pointer to a generated struct.
type Proto[M proto.Message] struct{ Message M }

// MarshalJSON implements json.Marshaler.
func (p Proto[M]) MarshalJSON() ([]byte, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(p.Message)
	if err != nil {
		return nil, err
	}
	return json.Marshal(raw)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Proto[M]) UnmarshalJSON(text []byte) error {
	var raw []byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	p.Message = p.Message.ProtoReflect().New().Interface().(M) // New of a type gives that type
	return proto.Unmarshal(raw, p.Message)
}
