package bridge

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"monopod.dev/monopod/internal/network/links"
)

func TestOverlap(t *testing.T) {
	prefix := netip.MustParsePrefix("10.61.0.0/16")
	for other, bad := range map[string]bool{
		"10.61.3.4/32": true, "10.0.0.0/8": true, "10.61.0.0/16": true,
		"10.62.0.0/16": false, "0.0.0.0/0": false, "0.0.0.0/1": false, "192.168.0.0/16": false,
	} {
		err := overlap(prefix, []links.Use{{}, {Prefix: netip.MustParsePrefix(other), What: "route " + other + " on x"}})
		if (err != nil) != bad || bad && !strings.Contains(err.Error(), "route "+other+" on x") {
			t.Errorf("%s: %v", other, err)
		}
	}
}

// Every field of what is stored comes back.
func TestStoredRecords(t *testing.T) {
	for want, rec := range map[string]any{
		`{"bridge":true,"ipForward":true,"ip6Forward":true,"boot":"b","acceptRA":["eth0"],"updated":["10.0.0.0/24"],"configured":["10.0.1.0/24"]}`: &hostNote{
			Bridge: true, IPForward: true, IP6Forward: true, Boot: "b", AcceptRA: []string{"eth0"}, Updated: ranges("10.0.0.0/24"), Configured: ranges("10.0.1.0/24")},
	} {
		v := reflect.ValueOf(rec).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not tested", v.Type(), v.Type().Field(i).Name)
			}
		}
		raw, err := json.Marshal(rec)
		if err != nil || string(raw) != want {
			t.Errorf("%s is stored as %s, %v", v.Type(), raw, err)
		}
		back := reflect.New(v.Type())
		if err := json.Unmarshal(raw, back.Interface()); err != nil || !reflect.DeepEqual(back.Interface(), rec) {
			t.Errorf("%s comes back as %+v, %v", v.Type(), back, err)
		}
	}
}
