package escape

import "fmt"

// attacks are what /attack does inside a container, by its first argument.
var attacks = map[string]func(args []string) error{
	"answer":      answer,
	"exchange":    exchange,
	"exhaust":     exhaust,
	"frames":      frames,
	"inheritable": inheritable,
	"litter":      litter,
	"overwrite":   overwrite,
	"read":        show,
	"sockets":     sockets,
	"spy":         spy,
	"stop":        stopAll,
	"user":        tellUser,
}

// attack is the program /attack.
func attack(args []string) int {
	if len(args) == 0 || attacks[args[0]] == nil {
		fmt.Println("attack: which one?")
		return 2
	}
	if err := attacks[args[0]](args[1:]); err != nil {
		fmt.Println("attack:", err)
		return 1
	}
	return 0
}
