-- Gateways remember tools for a moment; what the operator says of one makes them forget.

create trigger notify_entries after insert or update or delete or truncate on tool_classes
    for each statement execute function notify_entries();
