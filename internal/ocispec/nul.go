package ocispec

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkNUL refuses a configuration with a NUL in a string that is used: arguments, variables, paths and names all end at the first one,
// so what the kernel, or a program in between, would make of it is not what was asked for. Labels and annotations are told
// back as they came, and used for nothing. The value is not in the error: it may be a secret.
func checkNUL(m proto.Message) error {
	// Strings are encoded as they are, so a field in whose encoding there is no zero holds none. That is quickly said, and of most.
	if raw, err := proto.Marshal(m); err == nil && !hasZero(raw, m.ProtoReflect().Descriptor()) {
		return nil
	}
	if field, at := nulIn(m.ProtoReflect()); at >= 0 {
		return invalid(strings.TrimPrefix(field, "."), "byte %d is a NUL, at which a string of the kernel ends: leave it out", at)
	}
	return nil
}

// hasZero says that there is a zero in the encoding of a field that may hold strings. It may be a number's, or a length.
func hasZero(raw []byte, m protoreflect.MessageDescriptor) bool {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return true
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			return true
		}
		if f := m.Fields().ByNumber(number); kind == protowire.BytesType && f != nil && !isFree(f) {
			value, _ := protowire.ConsumeBytes(raw)
			if bytes.IndexByte(value, 0) >= 0 && (f.Kind() != protoreflect.MessageKind || f.IsMap() || hasZero(value, f.Message())) {
				return true
			}
		}
		raw = raw[n:]
	}
	return false
}

// isFree says that the strings of a field are used for nothing.
func isFree(f protoreflect.FieldDescriptor) bool {
	return f.Name() == "labels" || f.Name() == "annotations"
}

// nulIn finds the first NUL in a message: the field, with a dot before it, and the byte of its value; -1: there is none.
func nulIn(m protoreflect.Message) (field string, at int) {
	at = -1
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		kind := f.Kind()
		if kind != protoreflect.StringKind && kind != protoreflect.BytesKind && kind != protoreflect.MessageKind || isFree(f) {
			return true
		}
		var below string
		switch {
		case f.IsMap():
			below, at = nulInMap(v.Map(), f.MapKey().Kind(), f.MapValue().Kind())
		case f.IsList():
			below, at = nulInList(v.List(), kind)
		default:
			below, at = nulInValue(v, kind)
		}
		field = below
		if at >= 0 {
			field = "." + string(f.Name()) + below
		}
		return at < 0
	})
	return field, at
}

func nulInMap(m protoreflect.Map, keys, values protoreflect.Kind) (below string, at int) {
	at = -1
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if _, at = nulInValue(k.Value(), keys); at >= 0 {
			below = fmt.Sprintf("[%q]", k.String())
		} else if below, at = nulInValue(v, values); at >= 0 {
			below = fmt.Sprintf("[%s]%s", k, below)
		}
		return at < 0
	})
	return below, at
}

func nulInList(l protoreflect.List, kind protoreflect.Kind) (below string, at int) {
	for i := range l.Len() {
		if below, at = nulInValue(l.Get(i), kind); at >= 0 {
			return fmt.Sprintf("[%d]%s", i, below), at
		}
	}
	return "", -1
}

func nulInValue(v protoreflect.Value, kind protoreflect.Kind) (below string, at int) {
	switch kind {
	case protoreflect.StringKind:
		return "", strings.IndexByte(v.String(), 0)
	case protoreflect.BytesKind:
		return "", bytes.IndexByte(v.Bytes(), 0)
	case protoreflect.MessageKind:
		return nulIn(v.Message())
	}
	return "", -1
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
