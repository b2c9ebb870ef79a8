// Package records keeps protobuf messages in JSON records: as the base64 of their protobuf encoding, which keeps every field, those
// too that a newer client knows and this code does not.
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
