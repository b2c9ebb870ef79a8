package registry

import (
	"errors"
	"testing"
)

// TestEachAnswerIsToldOnce: what the error says already is not repeated behind it.
func TestEachAnswerIsToldOnce(t *testing.T) {
	dial := "dial tcp 127.0.0.1:443: connect: connection refused"
	err := errors.New(`failed to do request: Head "https://a.example/v2/x/manifests/1": ` + dial)
	a, mirror := attempt{host: "a.example", url: "https://a.example", answer: dial}, attempt{host: "m.example", url: "https://m.example", answer: "503"}
	for want, tried := range map[string][]attempt{
		err.Error(): {a},
		err.Error() + "; tried: https://m.example (503), https://a.example": {mirror, a},
		err.Error() + "; tried: https://m.example (503)":                    {mirror},
		err.Error() + "; tried: https://m.example (" + dial + ")":           {{url: "https://m.example", answer: dial}},
	} {
		if got := (&Session{tried: tried}).Explain(err).Error(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
