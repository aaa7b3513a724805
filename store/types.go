package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"tranche/ledger"
)

// registerTypes teaches a connection that timestamptz is UTC and that a
// ledger.Instant is a timestamptz, with the zero Instant as NULL.
func registerTypes(types *pgtype.Map) {
	stamp := &pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: instantCodec{
		&pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	}}
	types.RegisterType(stamp)
	types.RegisterType(&pgtype.Type{Name: "_timestamptz", OID: pgtype.TimestamptzArrayOID, Codec: &pgtype.ArrayCodec{ElementType: stamp}})
	types.RegisterType(&pgtype.Type{Name: "tstzrange", OID: pgtype.TstzrangeOID, Codec: &pgtype.RangeCodec{ElementType: stamp}})
}

// pgEpoch is 2000-01-01T00:00:00Z, where PostgreSQL's microseconds begin.
const pgEpoch ledger.Instant = 946_684_800_000_000

// instantCodec is pgx's codec plus ledger.Instant.
type instantCodec struct{ *pgtype.TimestamptzCodec }

func (c instantCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(ledger.Instant); ok && format == pgtype.BinaryFormatCode {
		return encodeInstant{}
	}
	return c.TimestamptzCodec.PlanEncode(m, oid, format, value)
}

func (c instantCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*ledger.Instant); ok && format == pgtype.BinaryFormatCode {
		return scanInstant{}
	}
	return c.TimestamptzCodec.PlanScan(m, oid, format, target)
}

type encodeInstant struct{}

func (encodeInstant) Encode(value any, buf []byte) ([]byte, error) {
	at, ok := value.(ledger.Instant)
	if !ok {
		return nil, fmt.Errorf("encode an instant: got %T", value)
	}
	if at == 0 {
		return nil, nil
	}
	return binary.BigEndian.AppendUint64(buf, uint64(at-pgEpoch)), nil
}

type scanInstant struct{}

func (scanInstant) Scan(src []byte, target any) error {
	at, ok := target.(*ledger.Instant)
	if !ok {
		return fmt.Errorf("scan an instant: into %T", target)
	}
	if src == nil {
		*at = 0
		return nil
	}
	if len(src) != 8 {
		return fmt.Errorf("scan an instant: %d bytes", len(src))
	}
	*at = ledger.Instant(binary.BigEndian.Uint64(src)) + pgEpoch
	return nil
}
